// What sample() draws from, for whoever wants to see the probabilities.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "regard/generate.h"

namespace regard {

struct Candidate {
  int32_t id;
  float logit;      ///< after all penalties, divided by the temperature
  double prob = 0;  ///< among the candidates
};

/// What the options do to logits (or log-probabilities) before anything is chosen, in their order: bias, penalties, blocked n-grams.
void process_logits(std::vector<float>& logits, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& options);

/// The ids that may follow and their probabilities, in no particular order; a single one when the choice is greedy.
/// Arguments and errors as sample().
std::vector<Candidate> candidates(std::span<const float> logits, std::span<const int32_t> history, int64_t prompt_size, const SamplingOptions& options);

}  // namespace regard
