/* The probe as an observer of the worker. */
#include "exec/probe_private.h"

static petra_probe *of(petra_stage_observer *observer) {
  return (petra_probe *)observer;
}

static petra_status begins(petra_stage_observer *observer, int64_t virtual_ns, const petra_action *actions, int count) {
  return petra_probe_before(of(observer), virtual_ns, actions, count);
}

static petra_status done(petra_stage_observer *observer) {
  return petra_probe_after(of(observer));
}

static petra_status read(petra_stage_observer *observer, int64_t microbatch, const petra_tensor *images,
                         const int32_t *labels, int32_t count) {
  return petra_probe_read(of(observer), microbatch, images, labels, count);
}

static petra_status input(petra_stage_observer *observer, int32_t stage, int64_t microbatch, const petra_streams *in) {
  return petra_probe_input(of(observer), stage, microbatch, in);
}

static petra_status forwarded(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  return petra_probe_forward(of(observer), stage, microbatch);
}

static petra_status reconstructed(petra_stage_observer *observer, int32_t stage, int64_t microbatch,
                                  const petra_streams *found) {
  return petra_probe_reconstructed(of(observer), stage, microbatch, found);
}

static petra_status updating(petra_stage_observer *observer, int32_t stage, int64_t microbatch) {
  return petra_probe_update(of(observer), stage, microbatch);
}

petra_stage_observer *petra_probe_observer(petra_probe *probe) {
  static const petra_stage_observer_ops ops = {.begins = begins,
                                               .done = done,
                                               .read = read,
                                               .input = input,
                                               .forwarded = forwarded,
                                               .reconstructed = reconstructed,
                                               .updating = updating};
  probe->base.ops = &ops;
  return &probe->base;
}
