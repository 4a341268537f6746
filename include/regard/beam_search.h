// Beam search: the likeliest texts as wholes, where generate() takes the likeliest token each time.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "regard/export.h"
#include "regard/generate.h"
#include "regard/model.h"

namespace regard {

/// What is searched, and when the search ends. A text of n generated tokens, the id that ended it included, has the score
/// (sum of log p) / n^length_penalty.
struct BeamOptions {
  int64_t beams = 4;        ///< texts that are followed at once, 1 to 1,024; 1: greedy
  int64_t num_results = 1;  ///< how many of the best are handed back; 1 to `beams`
  /// 0: the likeliest text, which is often a short one. Above 0 longer texts gain, below 0 they lose. Wu et al., 2016, "Google's
  /// neural machine translation system", section 7, has another formula for the same purpose; this one is that of transformers.
  /// -24 to 24, so that the score of every text is a finite number.
  double length_penalty = 1;
  /// When to end once `beams` texts have ended, the worst of them with score w.
  enum class EarlyStopping {
    kNo,     ///< when the likeliest live text, scored at its present length, is no better than w: a heuristic, since it may gain by growing
    kYes,    ///< at once
    kNever,  ///< when no live text can become better than w: as kNo, but with length_penalty above 0 scored at the greatest length
  } early_stopping = EarlyStopping::kNo;
};

/// One text that was found.
struct BeamText {
  std::vector<int32_t> ids;  ///< without the id that ended the text
  std::string text;
  double score = 0;    ///< logprob / n^length_penalty
  double logprob = 0;  ///< the sum of the log-probabilities after the processors, the id that ended the text included
  FinishReason finish = FinishReason::kLength;
};

struct BeamResult {
  /// The best first; of equal ones that which ended first. Fewer than were asked for when there are no more: few ids are allowed, or
  /// the vocabulary is small.
  std::vector<BeamText> texts;
  int64_t prompt_tokens = 0;
  int64_t steps = 0;  ///< tokens of the longest text that was followed
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// Searches a continuation of every prompt, or a text about it where the model is an encoder-decoder, as `options` says for generate(), but that nothing is drawn: temperature is 0, seed
/// and streams mean nothing, and the filters are off.
///
/// A step: log p of every id from the raw logits of each live text; on these, in this order, logit_bias with the bans of end ids
/// (min_tokens, end_of_text), the penalties, blocked n-grams, and `allowed`. What is banned is lost: its mass is not shared out. Of all continuations those with the greatest sums are looked at in turn, as many
/// as there can be that end and `beams` more; equal sums by the lower beam, then the lower id. One that ends (an end id, a stop
/// string, an empty allowed set, max_tokens, the context) becomes a result if it is among the first `beams` of them and its score among
/// the `beams` best so far; of the others the first `beams` live on. This is the rule of transformers 5.
///
/// Live texts share the keys and values of what they have in common: a step copies the last, partly filled tile of 256 tokens of a
/// text that goes on in several ways, and nothing else. Results do not depend on the number of threads or the other prompts.
/// Errors: as generate(), and kInvalidArgument for options that are out of range.
REGARD_API std::vector<BeamResult> beam_search(const Model& model, std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                                               const BeamOptions& beam_options);

}  // namespace regard
