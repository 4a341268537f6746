// Text from a model: choosing tokens, stopping, streaming; and measuring how well a model predicts a text.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "regard/export.h"
#include "regard/model.h"

namespace regard {

/// How the next token is chosen. The steps run in the order of the fields, which is that of Hugging Face transformers:
/// the penalties change logits, the filters remove tokens, and one of what is left is drawn. Ties go to the lowest id.
struct SamplingOptions {
  /// Added to the logits of single ids, before everything else. -infinity bans an id.
  std::vector<std::pair<int32_t, float>> logit_bias;
  /// Divides positive and multiplies negative logits of every id that has occurred, prompt included. 1: off. > 0.
  /// Keskar et al., 2019, "CTRL", section 4.1.
  float repetition_penalty = 1.0f;
  /// Subtracted once per occurrence among the generated tokens, and once for having occurred at all.
  float frequency_penalty = 0.0f;
  float presence_penalty = 0.0f;
  /// No n-gram of this length occurs twice, prompt included. 0: off.
  int64_t no_repeat_ngram = 0;
  /// Divides the logits. 0: greedy, the filters below have no effect. >= 0.
  float temperature = 0.0f;
  /// Keeps the k most likely ids. 0: all.
  int64_t top_k = 0;
  /// Keeps the most likely ids whose probabilities sum up to p, the one that crosses p included. (0, 1].
  /// Holtzman et al., 2020, "The curious case of neural text degeneration", section 3.1.
  float top_p = 1.0f;
  /// Keeps ids with at least this share of the largest probability. [0, 1].
  float min_p = 0.0f;
  /// Keeps the ids whose information is closest to the entropy, up to this mass. (0, 1].
  /// Meister et al., 2023, "Locally typical sampling", section 4.
  float typical_p = 1.0f;
  /// A draw is f(seed, choice, token index): the same seed gives the same text on any number of threads, in any batch.
  uint64_t seed = 0;
};

/// A choice that is about to be made.
struct TokenChoice {
  int64_t index = 0;                 ///< which prompt of the batch
  std::span<const int32_t> history;  ///< prompt and text so far
  int64_t prompt_size = 0;           ///< of the history, the prompt
};
/// Which ids may come next, in any order; asked once before each choice, and what it returns has to last until it is asked again.
/// Nothing: all of them; an empty set ends the text (FinishReason::kStop); of a single id that one is taken without a draw.
using AllowedTokens = std::function<std::optional<std::span<const int32_t>>(const TokenChoice&)>;

struct GenerateOptions {
  SamplingOptions sampling;
  /// The form that a text has to keep: the logits of all other ids are masked before anything else is done to them, so no
  /// text is ever written that has to be thrown away. Empty: none.
  AllowedTokens allowed;
  /// The random stream of each text of a batch: the same for all, so that a text is what it would be alone, or stream i for
  /// prompt i, for several tries at one prompt.
  enum class Streams { kSame, kByIndex } streams = Streams::kSame;
  int64_t max_tokens = 128;
  /// Ids that end a text are banned until it has so many tokens, unless `allowed` leaves no other id. Stop strings are not.
  int64_t min_tokens = 0;
  /// What the texts of an encoder-decoder begin with, whose prompts are what its encoder reads; not part of the result. Empty:
  /// Model::decoder_start(). The penalties and TokenChoice::history know these ids and the text, not the source.
  std::vector<int32_t> start_ids;
  /// Text that ends the generation; it is not part of the result. At most 64 strings of at most 1,024 bytes.
  std::vector<std::string> stop_strings;
  /// Ids that end it, beside the model's own end-of-text ids.
  std::vector<int32_t> stop_ids;
  /// Whether the model's own end-of-text ids end the text, or are banned until max_tokens.
  enum class EndOfText { kStop, kIgnore } end_of_text = EndOfText::kStop;
  /// Log-probabilities of this many most likely ids per token, from the raw logits. -1: none; 0: of the chosen one only.
  int64_t top_logprobs = -1;
  int64_t prefill_chunk = 512;
  const StopToken* stop = nullptr;
};

enum class FinishReason {
  kStop,       ///< an end-of-text id, a stop id or a stop string
  kLength,     ///< max_tokens, or prompt and text fill the context
  kCancelled,  ///< the stop token, or the callback asked to end
};

struct TokenLogprob {
  int32_t id = 0;
  float logprob = 0;  ///< natural logarithm, from the raw logits before any penalty
};

/// One generated token, as the callback sees it.
struct TokenEvent {
  int64_t index = 0;        ///< which prompt of the batch
  int32_t id = 0;
  std::string text;         ///< text that has become certain with this token; may be empty (incomplete UTF-8, a possible stop string)
  float logprob = 0;               ///< 0 unless top_logprobs >= 0
  std::vector<TokenLogprob> top;   ///< likewise empty
};
/// Returns false to end this text.
using OnToken = std::function<bool(const TokenEvent&)>;

struct Generation {
  std::vector<int32_t> ids;                      ///< without the id that ended the text
  std::string text;
  FinishReason finish = FinishReason::kLength;
  std::vector<float> logprobs;                   ///< one per id when top_logprobs >= 0
  std::vector<std::vector<TokenLogprob>> top;    ///< likewise
  int64_t prompt_tokens = 0;
  double prefill_seconds = 0;
  double decode_seconds = 0;
};

/// Continues every prompt (token ids, not empty); an encoder-decoder reads it and writes a text about it. Results come in the order of the prompts; each text is the same as if it
/// had been generated alone. Errors: kInvalidArgument (an option out of range, an empty prompt, an id outside the
/// vocabulary, a prompt that does not fit the context: the message has both numbers), kNumeric when a model gives NaN or
/// when penalties and banned ids leave none of the allowed ones.
/// A stop request is no error: finish says kCancelled and what was generated so far is kept.
REGARD_API std::vector<Generation> generate(const Model& model, std::span<const std::vector<int32_t>> prompts,
                                            const GenerateOptions& options, const OnToken& on_token = {});

/// Feeds `tokens` to a sequence that may already remember a text, and continues it: how a chat keeps its cache between
/// turns. `choice` names the random stream of this text. The last generated token is not in the cache afterwards unless
/// another one followed it; feed sequence.tokens().size() onwards next time.
REGARD_API Generation generate(const Model& model, Sequence& sequence, std::span<const int32_t> tokens,
                               const GenerateOptions& options, const OnToken& on_token = {}, uint64_t choice = 0);

/// Chooses one id from raw logits; `history` is prompt and generated tokens, the first `prompt_size` of them the prompt.
/// Errors: kNumeric when a logit is NaN or nothing is left to choose from.
REGARD_API int32_t sample(std::span<const float> logits, std::span<const int32_t> history, int64_t prompt_size,
                          const SamplingOptions& options, uint64_t choice, int64_t token_index);

struct EvalOptions {
  int64_t window = 0;  ///< tokens that the model sees at once; 0: its context
  int64_t stride = 0;  ///< tokens by which the window moves; 0 or window: cut into pieces; less: sliding, each scored once
  int64_t prefill_chunk = 512;
  const StopToken* stop = nullptr;
  /// Called after every window with what is known so far.
  std::function<void(int64_t done_tokens, int64_t all_tokens, double nats)> progress;
};

/// How far an evaluation has come; feed it back to go on where it stopped.
struct EvalState {
  int64_t next_token = 0;     ///< first token not yet scored
  int64_t scored_tokens = 0;
  double nats = 0;            ///< sum of -log p over the scored tokens
};

/// Nats per token of a text: state.nats / state.scored_tokens; perplexity is e to that. The first token of every window has
/// no prediction and is not scored unless an earlier window scored it. Stops after any window when asked to, with the
/// state complete up to there.
REGARD_API EvalState evaluate(const Model& model, std::span<const int32_t> tokens, const EvalOptions& options, EvalState from = {});

}  // namespace regard
