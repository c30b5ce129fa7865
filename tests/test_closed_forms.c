/* SPDX-License-Identifier: Apache-2.0 */
/* The closed forms of the programs (docs/semantics/methods.md): time, lags, what is kept, on the virtual executor
 * with the worker that counts, over grids of J stages, M microbatches and k per update, with costs that share
 * no factor. The forms of lockstep with a fused head are in test_executor. */
#include "lay_out.h"
#include "program_run.h"

/* The step between two values of M. The plain build tries every M; with sanitizers this would take minutes. */
#ifdef __SANITIZE_ADDRESS__
enum { M_STEP = 21 };
#else
enum { M_STEP = 1 };
#endif

/* One microbatch at a time: J (F + R + B) each; the fused head recomputes nothing. */
START_TEST(sequential_time) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MAX; m += larger(M_STEP, m < 8 ? 1 : 7))
      for (int split = 0; split < 2; split++)
        for (int engines = 1; engines <= 2; engines++) {
          const petra_program_options options = flush_of(stages, m, split);
          EXPECT(time_of(&petra_program_sequential, &options, &unit, false, engines), 3 * stages * m, "sequential",
                 &options);
          EXPECT(time_of(&petra_program_sequential, &options, &unit, true, engines), (4 * stages - !split) * m,
                 "sequential, recomputing", &options);
          for (int c = 0; c < COSTS; c++) {
            const costs *x = &coprime[c];
            EXPECT(time_of(&petra_program_sequential, &options, x, true, engines),
                   m * (stages * (x->forward + x->backward) + (stages - !split) * x->reconstruct), "sequential",
                   &options);
          }
        }
}
END_TEST

/* (M + J - 1) (F + B), with F + R + B where everything is recomputed. */
START_TEST(gpipe_time) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MAX; m += M_STEP) {
      const petra_program_options options = flush_of(stages, m, true);
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, false, 1), 3 * (m + stages - 1), "gpipe", &options);
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, true, 1), 4 * (m + stages - 1), "gpipe-checkpoint",
             &options);
      for (int32_t j = 1; j <= stages; j++)
        EXPECT(counts[j].kept_max, m, "gpipe keeps", &options);
      for (int c = 0; c < COSTS; c++) {
        const costs *x = &coprime[c];
        EXPECT(time_of(&petra_program_gpipe, &options, x, true, 1),
               (m + stages - 1) * (x->forward + x->reconstruct + x->backward), "gpipe", &options);
      }
    }
}
END_TEST

/* torchgpipe: (M + J - 1) (F + R + B) - J R: J - 1 of the R are done while a stage waits for its first gradient or,
 * for the first microbatch to come back, are not needed. In units of one F: 4 (M + J - 1) - J. With several flushes,
 * each of them. */
START_TEST(gpipe_with_early_recomputation_time) {
  static const int64_t accumulate[] = {1, 2, 4, 8};
  early_recompute = true;
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++) {
    for (int64_t m = 1; m <= MICROBATCHES_MAX; m += M_STEP) {
      const petra_program_options options = flush_of(stages, m, true);
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, true, 1), 4 * (m + stages - 1) - stages, "torchgpipe",
             &options);
      for (int c = 0; c < COSTS; c++) {
        const costs *x = &coprime[c];
        /* A stage waits F + B of each stage above, of which it can use no more than its R. */
        if (x->reconstruct <= x->backward)
          EXPECT(time_of(&petra_program_gpipe, &options, x, true, 1),
                 (m + stages - 1) * (x->forward + x->reconstruct + x->backward) - stages * x->reconstruct, "torchgpipe",
                 &options);
      }
    }
    for (int k = 0; k < 4; k++) {
      petra_program_options options = flush_of(stages, 3 * accumulate[k], true);
      options.accumulate = accumulate[k];
      EXPECT(time_of(&petra_program_gpipe, &options, &unit, true, 1), 3 * (4 * (accumulate[k] + stages - 1) - stages),
             "torchgpipe", &options);
    }
  }
  early_recompute = false;
}
END_TEST

/* (M + J - 1) (F + B); stage j keeps min(J - j + 1, M); the waiting is (J - 1) / (M + J - 1) of the time. */
START_TEST(one_f_one_b_time) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MAX; m += M_STEP)
      for (int split = 0; split < 2; split++) {
        const petra_program_options options = flush_of(stages, m, split);
        EXPECT(time_of(&petra_program_1f1b, &options, &unit, false, 1), 3 * (m + stages - 1), "1f1b", &options);
        for (int c = 0; c < COSTS; c++) {
          const costs *x = &coprime[c];
          EXPECT(time_of(&petra_program_1f1b, &options, x, false, 1), (m + stages - 1) * (x->forward + x->backward),
                 "1f1b", &options);
          for (int32_t j = 1; j <= stages; j++) {
            EXPECT(counts[j].kept_max, smaller(stages - j + 1, m), "1f1b keeps", &options);
            EXPECT(device_counts[j].in_flight_max, smaller(stages - j + 1, m), "1f1b in flight", &options);
            EXPECT(device_counts[j].busy_ns, m * (x->forward + x->backward), "1f1b busy", &options);
            EXPECT(counts[j].lag_max, 0, "1f1b lag", &options);
          }
        }
      }
}
END_TEST

/* M (F + Bi + W) + (J - 1) (F + Bi - W) for M >= J and W <= min(F, Bi); every stage keeps at most J. */
START_TEST(zero_bubble_time) {
  static const costs split[] = {{1, 2, 1, 1},   {7, 16, 0, 5},  {3, 5, 0, 2},
                                {11, 16, 0, 3}, {2, 103, 0, 2}, {31, 34, 0, 17}};
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = stages; m <= MICROBATCHES_MAX; m += M_STEP)
      for (size_t c = 0; c < sizeof split / sizeof *split; c++) {
        const petra_program_options options = flush_of(stages, m, true);
        const costs *x = &split[c];
        int64_t inputs = x->backward - x->weight;
        ck_assert(x->weight <= smaller(x->forward, inputs));
        EXPECT(time_of(&petra_program_zb_h1, &options, x, false, 1),
               m * (x->forward + inputs + x->weight) + (stages - 1) * (x->forward + inputs - x->weight), "zb-h1",
               &options);
        for (int32_t j = 1; j <= stages; j++) {
          EXPECT(counts[j].kept_max, stages, "zb-h1 keeps", &options);
          EXPECT(counts[j].in_flight_max, stages - j + 1, "zb-h1 in flight", &options);
        }
      }
}
END_TEST

/* M (F + B) + (J - 1) (F + B) / v on J devices, chunks of cost F / v and B / v, M a multiple of J. */
START_TEST(interleaved_time) {
  for (int32_t devices = 1; devices <= STAGES_MAX; devices++)
    for (int32_t v = 1; v <= 4; v++)
      for (int64_t m = devices; m <= MICROBATCHES_MAX; m += devices * larger(M_STEP / devices, 1))
        for (int split = 0; split < 2; split++)
          for (int c = 0; c < COSTS; c++) {
            const costs *x = &coprime[c];
            petra_program_options options = flush_of(devices * v, m, split);
            options.chunks = v;
            EXPECT(time_of(&petra_program_interleaved, &options, x, false, 1),
                   (m * v + devices - 1) * (x->forward + x->backward), "interleaved", &options);
            for (int32_t d = 1; d <= devices && split; d++)
              EXPECT(device_counts[d].in_flight_max, smaller(2 * (devices - d) + (v - 1) * devices + 1, m * v),
                     "interleaved in flight", &options);
          }
}
END_TEST

/* As interleaved, for every M >= J: a device does all F of a stage, then those of its next stage. */
START_TEST(breadth_first_time) {
  for (int32_t devices = 1; devices <= STAGES_MAX; devices++)
    for (int32_t v = 2; v <= 3; v++)
      for (int64_t m = devices; m <= MICROBATCHES_MAX; m += v == 2 ? M_STEP : 7)
        for (int c = 0; c < COSTS; c++) {
          const costs *x = &coprime[c];
          petra_program_options options = flush_of(devices * v, m, true);
          options.chunks = v;
          EXPECT(time_of(&petra_program_looped_bfs, &options, x, false, 1),
                 (m * v + devices - 1) * (x->forward + x->backward), "looped-bfs", &options);
          for (int32_t d = 1; d <= devices; d++)
            EXPECT(device_counts[d].in_flight_max, m * v, "looped-bfs in flight", &options);
        }
}
END_TEST

/* Two stages on each of D devices in a V, M >= 2 D, F = Bi = W = 1 and nothing overlapped: 6 M + 2 (D - 1). A device
 * keeps up to 2 D + 1 microbatches of its stages. */
START_TEST(dualpipe_v_time) {
  for (int32_t devices = 1; devices <= STAGES_MAX; devices++)
    for (int64_t m = 2 * devices; m <= MICROBATCHES_MAX; m += M_STEP) {
      petra_program_options options = flush_of(2 * devices, m, true);
      lay_out(&petra_program_dualpipe_v, &options);
      EXPECT(time_of(&petra_program_dualpipe_v, &options, &unit, false, 1), 6 * m + 2 * (devices - 1), "dualpipe-v",
             &options);
      for (int32_t d = 1; d <= devices; d++)
        EXPECT(device_counts[d].kept_max, 2 * devices + 1, "dualpipe-v keeps", &options);
    }
}
END_TEST

/* Expects that no device has kept more microbatches of its stages than `limit`, and if `exact` that one has kept that
 * many. */
static void expect_kept(const petra_program_options *options, int64_t limit, bool exact, const char *what) {
  int64_t maximum = 0;
  for (int32_t d = 1; d <= petra_program_devices(options); d++)
    maximum = larger(maximum, device_counts[d].kept_max);
  EXPECT(exact ? maximum : larger(maximum, limit), limit, what, options);
}

/* zb-h2 with F = Bi = W = 1: D - 1 for the start of a run. If M >= 2 D - 1, a further flush takes 3 M, else 2 D - 1 - M
 * more. A device keeps up to 2 D - 1 microbatches. */
START_TEST(zero_bubble_with_more_memory_time) {
  for (int32_t devices = 1; devices <= 16; devices += devices < 8 ? 1 : 4)
    for (int64_t m = devices; m <= 2 * devices + 20; m += m < 2 * devices + 2 ? 1 : 9)
      for (int64_t flushes = 1; flushes <= 2; flushes++) {
        const int64_t wait = larger(2 * devices - 1 - m, 0);
        petra_program_options options = flush_of(devices, m * flushes, true);
        options.accumulate = m;
        lay_out(&petra_program_zb_h2, &options);
        EXPECT(time_of(&petra_program_zb_h2, &options, &unit, false, 1),
               3 * m * flushes + devices - 1 + wait * (flushes - 1), "zb-h2", &options);
        expect_kept(&options, smaller(m, 2 * devices - 1), true, "zb-h2 keeps");
      }
}
END_TEST

/* zb-v with F = Bi = W = 1, two stages on each of D devices: D - 1 for the start of a run, and 6 M for each flush of
 * M >= 2 D; a single flush of M >= D takes that long too. A device keeps up to 2 D microbatches of its stages. */
START_TEST(zero_bubble_in_a_v_time) {
  for (int32_t devices = 1; devices <= 16; devices += devices < 8 ? 1 : 4)
    for (int64_t m = devices; m <= 2 * devices + 20; m += m < 2 * devices + 2 ? 1 : 9)
      for (int64_t flushes = 1; flushes <= (m < 2 * devices ? 1 : 2); flushes++) {
        petra_program_options options = flush_of(2 * devices, m * flushes, true);
        options.accumulate = m;
        lay_out(&petra_program_zb_v, &options);
        EXPECT(time_of(&petra_program_zb_v, &options, &unit, false, 1), 6 * m * flushes + devices - 1, "zb-v",
               &options);
        expect_kept(&options, 2 * devices, true, "zb-v keeps");
      }
}
END_TEST

/* interleaved-zb with F = Bi = W = 1 and v stages on a device: 3 v M + D - 1 if D divides M, else at most D - 1 more. A
 * device keeps up to v D microbatches of its stages. */
START_TEST(interleaved_zero_bubble_time) {
  for (int32_t devices = 1; devices <= 16; devices += devices < 8 ? 1 : 4)
    for (int32_t v = 2; v <= 4; v++)
      for (int64_t m = devices; m <= 3 * devices; m += m < devices + 2 ? 1 : smaller(3, larger(3 * devices - m, 1))) {
        petra_program_options options = flush_of(v * devices, m, true);
        options.chunks = v;
        lay_out(&petra_program_interleaved_zb, &options);
        const int64_t more =
            time_of(&petra_program_interleaved_zb, &options, &unit, false, 1) - (3 * v * m + devices - 1);
        ck_assert_int_ge(more, 0);
        ck_assert_int_le(more, m % devices == 0 ? 0 : devices - 1);
        expect_kept(&options, v * devices, m % devices == 0, "interleaved-zb keeps");
      }
}
END_TEST

/* v-half and v-min with F = Bi = W = 1 and M >= D: at most 6 M + 3 (D - 1) and 6 M + 4 D - 3; v-min with at least four
 * devices and M >= 2 D takes 6 M + 4 D - 5, or 2 more if 3 divides D. A device keeps up to 2 floor((D + 2) / 2) and
 * 2 floor((D + 4) / 3) microbatches of its stages. */
START_TEST(less_memory_in_a_v_time) {
  for (int32_t devices = 2; devices <= 16; devices += devices < 8 ? 1 : 4)
    for (int64_t m = devices; m <= 2 * devices + 20; m += m < 2 * devices + 2 ? 1 : 9)
      for (int minimum = 0; minimum < 2; minimum++) {
        const petra_program_ops *program = minimum ? &petra_program_v_min : &petra_program_v_half;
        petra_program_options options = flush_of(2 * devices, m, true);
        lay_out(program, &options);
        const int64_t idle = time_of(program, &options, &unit, false, 1) - 6 * m;
        ck_assert_int_le(idle, minimum ? 4 * devices - 3 : 3 * (devices - 1));
        if (minimum && devices >= 4 && m >= 2 * devices)
          EXPECT(idle, 4 * devices - (devices % 3 == 0 ? 3 : 5), "v-min", &options);
        expect_kept(&options, 2 * (minimum ? (devices + 4) / 3 : (devices + 2) / 2), true, program->name);
      }
}
END_TEST

/* Steady state F + B per microbatch, J - j + 1 in flight, lag ceil((J - j) / k). */
START_TEST(asynchronous_time_and_lags) {
  static const int64_t factors[] = {1, 2, 4, 8};
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int64_t m = 1; m <= MICROBATCHES_MAX; m += m < 12 ? 1 : M_STEP)
      for (int f = 0; f < 4; f++)
        for (int c = 0; c < COSTS; c++) {
          const costs *x = &coprime[c];
          const int64_t k = factors[f];
          petra_program_options options = flush_of(stages, m, true);
          options.accumulate = k;
          EXPECT(time_of(&petra_program_1f1b_async, &options, x, false, 1),
                 (m + stages - 1) * (x->forward + x->backward), "1f1b-async", &options);
          EXPECT(back_end[m / 2] - back_end[m / 4], (m / 2 - m / 4) * (x->forward + x->backward), "steady state",
                 &options);
          for (int32_t j = 1; j <= stages; j++) {
            int64_t ahead = stages - j, maximum = 0;
            for (int64_t i = 0; i < m; i++)
              maximum = larger(maximum, i / k - (i > ahead ? i - ahead : 0) / k);
            EXPECT(counts[j].kept_max, smaller(ahead + 1, m), "1f1b-async keeps", &options);
            EXPECT(counts[j].lag_max, maximum, "1f1b-async lag", &options);
            if (m > k * ((ahead + k - 1) / k)) /* long enough to see the largest */
              EXPECT(counts[j].lag_max, (ahead + k - 1) / k, "1f1b-async largest lag", &options);
          }
        }
}
END_TEST

/* A double buffer: microbatch m reads version max(0, floor(m / k) - 1) in F and in B, whatever the stage. Whether
 * that is always there, and never more than one update old, in the run just done; *old_reads counts the passes that
 * read an old one. */
static bool two_versions_suffice(const petra_program_options *options, int64_t *old_reads) {
  int64_t updates[STAGES_MAX + 1] = {0};
  *old_reads = 0;
  ck_assert_int_le(row_count, ROWS_MAX);
  for (int64_t i = 0; i < row_count; i++) { /* on one engine the order of ends is that of a device's actions */
    const petra_action *a = &rows[i].action;
    const int64_t window = a->microbatch / options->accumulate, version = window > 0 ? window - 1 : 0;
    if (a->kind == PETRA_ACTION_UPDATE) {
      /* the update makes version w + 1 of version w and the gradients of window w, taken at version w - 1: a delay
       * of 1 */
      ck_assert_int_eq(a->microbatch, (updates[a->stage] + 1) * options->accumulate - 1);
      updates[a->stage]++;
    } else {
      if (version > updates[a->stage] || version < updates[a->stage] - 1)
        return false;
      *old_reads += version < updates[a->stage];
    }
  }
  return true;
}

/* pipedream-2bw: two versions are enough from k = J - 1 on (its authors ask for k >= J), and not below; every pass
 * between reads a version that is there; the lag that the latest weights would have is at most 1; F + B a
 * microbatch. */
START_TEST(versions_of_a_double_buffer) {
  int64_t old_reads;
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++)
    for (int64_t k = stages > 2 ? stages - 2 : 1; k <= 2 * stages; k += k <= stages ? 1 : stages - 1)
      for (int c = -1; c < COSTS; c += k < stages ? COSTS + 1 : 2) { /* unit costs, and a row of coprime ones */
        const costs *x = c < 0 ? &unit : &coprime[c];
        petra_program_options options = flush_of(stages, MICROBATCHES_MAX, true);
        options.accumulate = k;
        EXPECT(time_of(&petra_program_1f1b_async, &options, x, false, 1),
               (MICROBATCHES_MAX + stages - 1) * (x->forward + x->backward), "2bw", &options);
        EXPECT(two_versions_suffice(&options, &old_reads), k >= stages - 1, "two versions suffice", &options);
        if (k < stages)
          continue;
        ck_assert(MICROBATCHES_MAX < 2 * k || old_reads > 0);
        EXPECT(back_end[32] - back_end[16], 16 * (x->forward + x->backward), "2bw, steady state", &options);
        for (int32_t j = 1; j <= stages; j++) {
          ck_assert_int_le(counts[j].stash_max, 1);
          EXPECT(counts[j].lag_max, j < stages && k < MICROBATCHES_MAX, "2bw lag", &options);
        }
      }
}
END_TEST

/* Costs of the stages from `x`, those of inner stages unlike each other; the last update takes time if `updates`. */
static void unlike_costs(const costs *x, bool updates, petra_stage_cost *out) {
  for (int32_t j = 0; j < STAGES_MAX; j++)
    out[j] = (petra_stage_cost){.forward_ns = x->forward + j * 5 % 13,
                                .backward_ns = x->backward + j * 11 % 17,
                                .reconstruct_ns = x->reconstruct + j * 3 % 7,
                                .update_ns = updates ? 1 + j % 5 : 0};
}

/* Round m of forward-locked: F of all stages after one another, then the longest of B (and U) side by side, B with what it
 * computes again. A fused head does all of its own with the F. */
static int64_t time_of_round(const petra_program_options *o, const petra_stage_cost *cost, bool recomputes, int64_t m) {
  int64_t forwards = 0, maximum = 0;
  for (int32_t j = 1; j <= o->stages; j++) {
    const petra_stage_cost *c = &cost[j - 1];
    const int64_t back = m - (o->stages - j);
    const bool fused = j == o->stages && !o->split_head;
    if (m < o->microbatches)
      forwards += c->forward_ns + (fused ? c->backward_ns : 0);
    if (back >= 0 && back < o->microbatches)
      maximum = larger(maximum, (fused ? 0 : c->backward_ns + (recomputes ? c->reconstruct_ns : 0)) +
                                    ((back + 1) % o->accumulate == 0 ? c->update_ns : 0));
  }
  return forwards + maximum;
}

/* Time, what is kept, and lags of forward-locked, to the end of the run, drained or not. */
START_TEST(forward_locked_time_and_lags) {
  static const int64_t factors[] = {1, 2, 3, 8};
  petra_stage_cost cost[STAGES_MAX];
  for (int32_t stages = 1; stages <= STAGES_MAX; stages += 1 + stages / 6)
    for (int f = 0; f < 4; f++)
      for (int c = 0; c < 32 * COSTS; c++) {
        const bool recomputes = c & 1, updates = c >> 1 & 1;
        const int64_t m = c >> 3 & 1 ? MICROBATCHES_MAX : stages + 1, k = factors[f];
        const int engines = 1 + (f + stages) % 2;
        petra_program_options options = flush_of(stages, m, c >> 2 & 1);
        int64_t makespan, expected = 0;
        options.accumulate = k;
        options.drain = c >> 4 & 1;
        unlike_costs(&coprime[c / 32], updates, cost);
        stage_costs = cost;
        ck_assert_int_eq(run_program(&petra_program_forward_locked, &options, &unit, recomputes, engines, &makespan),
                         PETRA_OK);
        stage_costs = NULL;
        for (int64_t round = 0; round < m + (options.drain ? stages - 1 : 0); round++)
          expected += time_of_round(&options, cost, recomputes, round);
        EXPECT(makespan, expected, "forward-locked", &options);
        if (!updates && m >= 4 * stages)
          EXPECT(back_end[m / 2] - back_end[m / 4], (m / 2 - m / 4) * time_of_round(&options, cost, recomputes, m - 1),
                 "forward-locked, steady", &options);
        for (int32_t j = 1; j <= stages; j++) {
          const int64_t late = stages - j, backs = options.drain ? m : larger(m - late, 0);
          int64_t maximum = 0;
          for (int64_t i = 0; i < backs; i++)
            maximum = larger(maximum, i / k - (i > late ? i - late : 0) / k);
          EXPECT(counts[j].forwards, m, "forwards", &options);
          EXPECT(counts[j].backwards, backs, "backwards", &options);
          EXPECT(counts[j].updates, backs / k, "updates", &options);
          EXPECT(counts[j].kept_max, smaller(late + 1, m), "forward-locked keeps", &options);
          EXPECT(counts[j].lag_max, maximum, "forward-locked lag", &options);
          if (m >= late + k * ((late + k - 1) / k) + k) /* long enough to see the largest */
            EXPECT(counts[j].lag_max, (late + k - 1) / k, "forward-locked largest lag", &options);
        }
      }
}
END_TEST

/* At unit costs: J + 2 a microbatch where graphs are kept, J + 3 where they are computed again. */
START_TEST(forward_locked_at_unit_costs) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages++)
    for (int recomputes = 0; recomputes < 2; recomputes++) {
      petra_program_options options = flush_of(stages, 64, true);
      options.accumulate = 1;
      EXPECT(time_of(&petra_program_forward_locked, &options, &unit, recomputes, 1),
             (64 * (stages + 2 + recomputes) + (stages - 1) * (2 + recomputes)), "forward-locked, drained", &options);
      EXPECT(back_end[32] - back_end[31], stages + 2 + recomputes, "forward-locked", &options);
    }
}
END_TEST

/* Lockstep with graphs kept: with a split head on two engines each tick takes max(F, B), the delays one more.
 */
START_TEST(lockstep_with_a_split_head) {
  for (int32_t stages = 1; stages <= STAGES_MAX; stages += 1 + stages / 4)
    for (int64_t k = 1; k <= 8; k *= 2)
      for (int c = 0; c < COSTS; c++) {
        const costs *x = &coprime[c];
        petra_program_options options = flush_of(stages, MICROBATCHES_MAX, true);
        options.accumulate = k;
        time_of(&petra_program_lockstep, &options, x, false, 2);
        int64_t first = larger(MICROBATCHES_MAX / 4, 0), last = MICROBATCHES_MAX / 2;
        if (stages <= 4) /* steady: M >= 16 J */
          EXPECT(back_end[last] - back_end[first], (last - first) * larger(x->forward, x->backward), "lockstep",
                 &options);
        for (int32_t j = 1; j <= stages; j++) {
          int64_t delay = 2 * (stages - j) + 1, maximum = 0;
          for (int64_t i = 0; i < MICROBATCHES_MAX; i++)
            maximum = larger(maximum, i / k - (i > delay ? i - delay : 0) / k);
          EXPECT(counts[j].lag_max, maximum, "lockstep lag", &options);
        }
      }
}
END_TEST
/* Flushes of k: M / k times the time of one. zb-h1 needs k >= J, interleaved a multiple of J. */
START_TEST(flushes_of_k) {
  static const int64_t factors[] = {1, 2, 4, 8};
  for (int32_t stages = 2; stages <= STAGES_MAX; stages++)
    for (int f = 0; f < 4; f++)
      for (int n = 0; n < 3; n++)
        for (int c = 0; c < (n < 2 ? COSTS : 1); c++) {
          const int64_t k = factors[f], flushes = n == 0 ? 1 : n == 1 ? 3 : MICROBATCHES_MAX / k;
          const costs *x = &coprime[c];
          const int64_t both = x->forward + x->backward;
          petra_program_options options = flush_of(stages, k * flushes, true);
          options.accumulate = k;
          EXPECT(time_of(&petra_program_gpipe, &options, x, false, 1), flushes * (k + stages - 1) * both, "gpipe",
                 &options);
          EXPECT(time_of(&petra_program_gpipe, &options, x, true, 1),
                 flushes * (k + stages - 1) * (both + x->reconstruct), "gpipe-checkpoint", &options);
          EXPECT(time_of(&petra_program_1f1b, &options, x, false, 1), flushes * (k + stages - 1) * both, "1f1b",
                 &options);
          if (k >= stages && x->weight <= smaller(x->forward, x->backward - x->weight))
            EXPECT(time_of(&petra_program_zb_h1, &options, x, false, 1),
                   flushes * (k * both + (stages - 1) * (both - 2 * x->weight)), "zb-h1", &options);
          options.stages = 2 * stages;
          options.chunks = 2;
          if (k % stages == 0)
            EXPECT(time_of(&petra_program_interleaved, &options, x, false, 1), flushes * (2 * k + stages - 1) * both,
                   "interleaved", &options);
        }
}
END_TEST

/* The ranges are no idle words: just outside them zb-h1 takes longer than its form. */
START_TEST(outside_the_ranges) {
  static const costs late_weight = {2, 5, 0, 3} /* W > F, W > Bi */;
  for (int32_t stages = 3; stages <= 8; stages++) {
    petra_program_options options = flush_of(stages, stages, true);
    const costs *x = &late_weight;
    ck_assert_int_gt(time_of(&petra_program_zb_h1, &options, x, false, 1),
                     stages * (x->forward + x->backward) + (stages - 1) * (x->forward + x->backward - 2 * x->weight));
    options = flush_of(stages, 1, true); /* M < J */
    ck_assert_int_gt(time_of(&petra_program_zb_h1, &options, &unit, false, 1), 3 + (stages - 1) * 1);
  }
}
END_TEST

/* --- programs with a delay --- */

static const petra_program_ops *const delayed[] = {&petra_program_lockstep, &petra_program_1f1b_async,
                                                   &petra_program_forward_locked};

/* The version that F of m reads after a warm-up, and the latest one at its B. */
static void check_versions(const petra_program_ops *program, const petra_program_options *options) {
  for (int64_t r = 0; r < row_count; r++) {
    const petra_action *a = &rows[r].action;
    const int64_t late = a->microbatch - petra_program_delay(program, options, a->stage);
    const int64_t seen = a->microbatch < options->warmup ? a->microbatch : larger(options->warmup, late);
    if (a->kind == PETRA_ACTION_FORWARD)
      ck_assert_int_eq(rows[r].result.version_read, seen / options->accumulate);
    else if (a->kind == PETRA_ACTION_BACKWARD)
      ck_assert_int_eq(rows[r].result.version_read, a->microbatch / options->accumulate);
  }
}

/* A run with a warm-up is a run of 1f1b, which comes to rest, and behind it one of the program: in time, and in lags. */
START_TEST(a_warm_up_is_a_synchronous_run_before_the_program_s_own) {
  enum { WARMUP = 12, OWN = 30 };
  static const int64_t accumulates[] = {1, 4, 5};
  for (int c = 0; c < 3 * 5 * 3 * 2; c++) {
    const petra_program_ops *program = delayed[c % 3];
    const int32_t stages = 1 + c / 3 % 5;
    const int engines = 1 + c / 45;
    petra_program_options both = {.stages = stages,
                                  .microbatches = WARMUP + OWN,
                                  .accumulate = accumulates[c / 15 % 3],
                                  .drain = true,
                                  .batches = WARMUP / 2,
                                  .eval_every = 1,
                                  .split_head = program != &petra_program_lockstep || c % 2,
                                  .warmup = WARMUP};
    petra_program_options first = both, second = both;
    int64_t ends[OWN];
    first.microbatches = WARMUP;
    second.microbatches = OWN;
    first.warmup = second.warmup = 0;
    const int64_t own = time_of(program, &second, &coprime[0], true, engines);
    memcpy(ends, back_end, sizeof ends);
    const int64_t warmup = time_of(&petra_program_1f1b, &first, &coprime[0], true, engines);
    const int64_t whole = time_of(program, &both, &coprime[0], true, engines);
    ck_assert_int_eq(evaluate_rows, stages * (WARMUP + OWN) / (WARMUP / 2));
    check_versions(program, &both);
    if (WARMUP % both.accumulate !=
        0) /* with two engines a window that both have a part in has no update between them */
      continue;
    ck_assert_int_eq(whole, warmup + own);
    for (int m = 0; m < OWN; m++)
      ck_assert_int_eq(back_end[WARMUP + m], warmup + ends[m]);
  }
}
END_TEST

/* A warm-up that the run does not leave is a run of 1f1b. */
START_TEST(a_run_that_is_all_warm_up) {
  for (int p = 0; p < 3; p++) {
    petra_program_options options = {.stages = 4, .microbatches = 10, .accumulate = 3, .batches = 20, .warmup = 20};
    const int64_t whole = time_of(delayed[p], &options, &coprime[1], true, 1);
    ck_assert_int_eq(petra_program_losses(delayed[p], &options), 10);
    ck_assert_int_eq(petra_program_time_of(delayed[p], &options), PETRA_TIME_WHOLE);
    options.warmup = 0;
    ck_assert_int_eq(whole, time_of(&petra_program_1f1b, &options, &coprime[1], true, 1));
  }
}
END_TEST

/* Counted in a run in which F and B take one time everywhere; the ticks of lockstep, which no clock holds together, are counted in
 * test_schedule. */
START_TEST(descents_are_those_of_a_run) {
  static const costs even = {1, 1, 0, 0};
  enum { STAGES = 7, MICROBATCH = 24 };
  for (int c = 0; c < 2; c++) {
    const petra_program_options options = {
        .stages = STAGES, .microbatches = 48, .accumulate = 1, .drain = true, .batches = 48, .split_head = true};
    time_of(delayed[1 + c], &options, &even, false, 1);
    for (int32_t j = 1; j <= STAGES; j++) {
      int64_t own_end = 0, found = 0;
      for (int64_t r = 0; r < row_count; r++)
        if (rows[r].action.kind == PETRA_ACTION_BACKWARD && rows[r].action.stage == j &&
            rows[r].action.microbatch == MICROBATCH)
          own_end = rows[r].end_ns;
      for (int64_t r = 0; r < row_count; r++)
        found += rows[r].action.kind == PETRA_ACTION_BACKWARD && rows[r].action.stage == j &&
                 rows[r].end_ns > own_end && rows[r].end_ns <= back_end[MICROBATCH];
      ck_assert_msg(found == petra_program_descent(delayed[1 + c], &options, j), "%s, stage %d: %lld",
                    delayed[1 + c]->name, j, (long long)found);
    }
  }
}
END_TEST

int main(void) {
  const TTest *const tests[] = {sequential_time,
                                gpipe_time,
                                gpipe_with_early_recomputation_time,
                                one_f_one_b_time,
                                zero_bubble_time,
                                interleaved_time,
                                breadth_first_time,
                                dualpipe_v_time,
                                zero_bubble_with_more_memory_time,
                                zero_bubble_in_a_v_time,
                                interleaved_zero_bubble_time,
                                less_memory_in_a_v_time,
                                asynchronous_time_and_lags,
                                versions_of_a_double_buffer,
                                forward_locked_time_and_lags,
                                forward_locked_at_unit_costs,
                                lockstep_with_a_split_head,
                                flushes_of_k,
                                outside_the_ranges,
                                a_warm_up_is_a_synchronous_run_before_the_program_s_own,
                                a_run_that_is_all_warm_up,
                                descents_are_those_of_a_run};
  return harness_run("closed_forms", tests, HARNESS_COUNT(tests));
}
