// What the loops of this room share: checks of what a caller asked for, which ids end a text, how a text begins, how texts are fed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "regard/generate.h"

namespace regard {

/// Errors: kInvalidArgument with the name of the option, what was given and its range.
void check_sampling(const SamplingOptions& options);
void check_generate(const GenerateOptions& options);

/// What else to do about a text that does not fit the context, behind "shorten it": a larger one, if the model can have it.
std::string larger_context_advice(const Model& model);

/// Errors: kInvalidArgument for a prompt that is empty, holds an id outside the vocabulary, or does not fit the context beside
/// `known` tokens. Prompts are counted from 0 here, from 1 in what is said.
void check_prompt(const Model& model, int64_t index, int64_t known, std::span<const int32_t> prompt);

/// A text that is about to be written.
struct TextBegin {
  Sequence sequence;
  std::vector<int32_t> first;  ///< what is fed first: the prompt, or the start ids of an encoder-decoder, whose encoder has read the prompt
};

/// Checks a prompt and begins its text; nothing when a stop was requested while the encoder ran.
std::optional<TextBegin> begin_text(const Model& model, int64_t index, std::span<const int32_t> prompt, const GenerateOptions& options);

/// Runs the model; `logits` gets a row for each feed. False when a stop was requested; the sequences are then as they were.
bool feed_texts(const Model& model, std::span<const Feed> feeds, const GenerateOptions& options, std::vector<float>& logits);

/// The ids that end a text, each once.
std::vector<int32_t> ending_ids(const Model& model, const GenerateOptions& options);

/// The sampling options with the bans that other options imply.
struct EffectiveSampling {
  SamplingOptions always;
  SamplingOptions before_min_tokens;  ///< with fewer than min_tokens generated tokens
  int64_t min_tokens = 0;

  EffectiveSampling(const Model& model, const GenerateOptions& options);
  const SamplingOptions& at(int64_t generated) const { return generated < min_tokens ? before_min_tokens : always; }
};

}  // namespace regard
