// Log-probabilities of a row of raw logits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/generate.h"

namespace regard {

/// log sum e^x over a row, in f64 over exponentials in f32 (relative error of the sum below 1e-6).
/// Errors: kNumeric when a logit is NaN or +infinity, or all are -infinity.
double log_sum_exp(std::span<const float> logits);

/// The n most likely ids with their log-probabilities, most likely first, ties by the lower id.
std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double log_sum, int64_t n);

}  // namespace regard
