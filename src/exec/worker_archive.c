/* The worker in a checkpoint: its stages, the messages between them, labels, evaluations that wait for a stage. */
#include "base/mem.h"
#include "exec/worker_stage_private.h"
#include "stage/archive.h"

#include <stdio.h>

static petra_status archive_mailbox(petra_tensor_archive *tensors, const char *name, petra_mailbox *box) {
  int64_t count = box->count;
  char item[64];
  snprintf(item, sizeof item, "%s-count", name);
  PETRA_TRY(petra_archive_integers(tensors->archive, item, &count, 1));
  for (int64_t i = 0; i < count; i++) {
    petra_mail mail = {0};
    if (!tensors->archive->reading)
      mail = box->mail[i];
    snprintf(item, sizeof item, "%s-%lld-microbatch", name, (long long)i);
    PETRA_TRY(petra_archive_integers(tensors->archive, item, &mail.microbatch, 1));
    snprintf(item, sizeof item, "%s-%lld", name, (long long)i);
    petra_status status = petra_message_archive(tensors, item, &mail.message);
    if (tensors->archive->reading && status == PETRA_OK)
      status = petra_mailbox_put(box, mail.microbatch, &mail.message);
    else if (tensors->archive->reading)
      petra_message_release(&mail.message);
    PETRA_TRY(status);
  }
  return PETRA_OK;
}

static petra_status archive_mail(petra_worker_stage *worker, petra_tensor_archive *tensors) {
  for (int32_t j = 0; j < worker->options.stages; j++) {
    char name[40];
    snprintf(name, sizeof name, "messages/forward-%02d", j + 1);
    PETRA_TRY(archive_mailbox(tensors, name, &worker->forward[j]));
    snprintf(name, sizeof name, "messages/backward-%02d", j + 1);
    PETRA_TRY(archive_mailbox(tensors, name, &worker->backward[j]));
  }
  return PETRA_OK;
}

static petra_status archive_label_row(petra_archive *archive, petra_labels *labels, const char *name,
                                      const petra_label_row *row, int64_t about[2]) {
  int64_t *wide;
  int32_t *narrow = NULL;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&wide, (size_t)about[1], sizeof *wide));
  PETRA_TRY_GOTO(status, petra_allocate(&narrow, (size_t)about[1], sizeof *narrow), done);
  for (int64_t i = 0; row && i < about[1]; i++)
    wide[i] = row->labels[i];
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, name, wide, about[1]), done);
  for (int64_t i = 0; i < about[1]; i++)
    narrow[i] = (int32_t)wide[i];
  if (archive->reading)
    status = petra_labels_put(labels, about[0], narrow, (int32_t)about[1]);
done:
  petra_free(narrow);
  petra_free(wide);
  return status;
}

static petra_status archive_labels(petra_worker_stage *worker, petra_archive *archive) {
  petra_labels *labels = &worker->labels;
  int64_t count = 0, row = 0;
  for (int i = 0; i < labels->capacity; i++)
    count += labels->rows[i].microbatch >= 0;
  PETRA_TRY(petra_archive_integers(archive, "labels/count", &count, 1));
  for (int64_t i = 0; i < count; i++) {
    const petra_label_row *one = NULL;
    int64_t about[2] = {0, 0};
    char name[48];
    while (!archive->reading && labels->rows[row].microbatch < 0)
      row++;
    if (!archive->reading) {
      one = &labels->rows[row++];
      about[0] = one->microbatch;
      about[1] = one->count;
    }
    snprintf(name, sizeof name, "labels/%lld-microbatch", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    snprintf(name, sizeof name, "labels/%lld", (long long)i);
    PETRA_TRY(archive_label_row(archive, labels, name, one, about));
  }
  return PETRA_OK;
}

/* Evaluations that some stages have reached and others not. */
static petra_status archive_evaluations(petra_worker_stage *worker, petra_tensor_archive *tensors) {
  petra_archive *archive = tensors->archive;
  int64_t count = 0;
  petra_pending *evaluation = worker->evaluations;
  for (petra_pending *e = evaluation; e; e = e->next)
    count++;
  PETRA_TRY(petra_archive_integers(archive, "evaluations/count", &count, 1));
  for (int64_t i = 0; i < count; i++) {
    int64_t about[2] = {0, 0};
    char name[64];
    if (!archive->reading) {
      about[0] = evaluation->microbatch;
      about[1] = evaluation->reached;
    }
    snprintf(name, sizeof name, "evaluations/%lld", (long long)i);
    PETRA_TRY(petra_archive_integers(archive, name, about, 2));
    if (archive->reading) {
      petra_pending **link;
      PETRA_TRY(petra_worker_find_pending(worker, about[0], &link));
      evaluation = *link;
      evaluation->reached = (int32_t)about[1];
    }
    for (int32_t j = 0; j < worker->options.stages; j++) {
      snprintf(name, sizeof name, "evaluations/%lld-stage-%02d", (long long)i, j + 1);
      PETRA_TRY(petra_snapshot_archive(worker->options.stage[j], tensors, name, &evaluation->snapshots[j]));
    }
    evaluation = evaluation->next;
  }
  return PETRA_OK;
}

petra_status petra_worker_stage_archive(petra_worker *base, petra_archive *archive) {
  petra_worker_stage *worker = (petra_worker_stage *)base;
  const petra_worker_stage_options *options = &worker->options;
  petra_tensor_archive tensors = {
      .archive = archive, .backend = options->backend, .account_count = options->stages + (options->probe != NULL)};
  petra_account **accounts;
  petra_status status = PETRA_OK;
  PETRA_TRY(petra_allocate(&accounts, (size_t)options->stages + 1, sizeof *accounts));
  for (int32_t j = 0; j < options->stages; j++)
    accounts[j] = petra_stage_account(options->stage[j]);
  if (options->probe)
    accounts[options->stages] = petra_probe_account(options->probe);
  tensors.accounts = accounts;
  PETRA_TRY_GOTO(status, petra_archive_integers(archive, "read", &worker->read, 1), done);
  for (int32_t j = 0; j < options->stages; j++)
    PETRA_TRY_GOTO(status, petra_stage_archive(options->stage[j], &tensors), done);
  PETRA_TRY_GOTO(status, archive_mail(worker, &tensors), done);
  PETRA_TRY_GOTO(status, archive_labels(worker, archive), done);
  PETRA_TRY_GOTO(status, archive_evaluations(worker, &tensors), done);
  status = petra_probe_archive(options->probe, &tensors);
done:
  petra_tensor_archive_fini(&tensors);
  petra_free(accounts);
  return status;
}

int64_t petra_worker_stage_read(const petra_worker *worker) {
  return ((const petra_worker_stage *)worker)->read;
}
