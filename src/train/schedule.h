// The learning rate as a function of the step: nothing is remembered from step to step.
#pragma once

#include <cstdint>

#include "regard/train.h"

namespace regard::train_loop {

/// The learning rate of step `step` (the first is 0) of a run of `steps`.
///
/// Warm-up: step + 1 of warmup_steps parts of the learning rate. Behind it, with p = (step - warmup) / (steps - warmup):
///   linear               1 - (1 - final_fraction) p
///   cosine               final_fraction + (1 - final_fraction) (1 + cos(pi p)) / 2     (Loshchilov, Hutter 2017, SGDR, eq. 5)
///   inverse_sqrt         sqrt(warmup / (step + 1)), warmup at least 1                  (Vaswani et al. 2017, section 5.3)
///   warmup_stable_decay  1, and over the last decay_fraction of all steps linear        (Hu et al. 2024, MiniCPM, section 4)
double learning_rate(const TrainConfig::Schedule& schedule, double top, int64_t step, int64_t steps);

}  // namespace regard::train_loop
