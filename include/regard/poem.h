// Acrostic poems (cang tou shi): verses in the regular Chinese form whose first characters are given. Any decoder whose tokens
// are characters can write one; the better it knows verse, the better the poem. Start at write_acrostic().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"
#include "regard/generate.h"
#include "regard/model.h"
#include "regard/stop_token.h"

namespace regard {

/// Characters of a verse, its mark not counted.
enum class VerseForm { kFive = 5, kSeven = 7 };

struct PoemOptions {
  VerseForm form = VerseForm::kSeven;
  /// Poems that are written side by side, each from a random stream of its own; candidate i is the same whatever the others are.
  /// 1 to 1,024. At temperature 0 all would be the same, so it has to be 1 there.
  int64_t candidates = 8;
  /// How the free characters are chosen among the Han characters of the vocabulary.
  SamplingOptions sampling = usual_sampling();
  /// What a repetition costs in nats, see Poem::score. Finite, 0 or more.
  double repetition_cost = 1;
  const StopToken* stop = nullptr;

  /// Temperature 0.8 and top_p 0.95: varied, without the characters that the model thinks least of.
  static SamplingOptions usual_sampling() {
    SamplingOptions sampling;
    sampling.temperature = 0.8f;
    sampling.top_p = 0.95f;
    return sampling;
  }
};

/// A poem, and what it is ranked by. Free characters are those that neither the acrostic nor the form gives.
struct Poem {
  std::string text;                 ///< the verses with their marks, in one line as in the training text
  std::vector<std::string> verses;  ///< each with its mark
  std::vector<int32_t> ids;         ///< of the text
  /// What the model read before the text: the end of a line where the vocabulary has it, else its token that begins (or
  /// ends) a text, else nothing.
  std::vector<int32_t> start;
  int64_t candidate = 0;  ///< number of its random stream
  double mean_logprob = 0;  ///< mean of log p(character | all before) over the free characters, by the model's whole softmax
  /// Free characters that stand somewhere before in the poem. Not counted: one that doubles the character just before it in
  /// the same verse, when that is where it occurred first, as in "qing qing he pan cao".
  int64_t repetitions = 0;
  double score = 0;  ///< mean_logprob - repetition_cost * repetitions / free characters; 0 without free characters
  bool complete = false;  ///< false: stopped on request; the verses go as far as it came
};

/// Text of the only candidate as it is written, verse by verse and character by character.
using OnPoemText = std::function<void(std::string_view text)>;

/// Writes `candidates` poems: verse i begins with character i of `acrostic` and has `form` characters, all of them Han
/// characters; verses end in the full-width comma (U+FF0C) and the full stop (U+3002) by turns, the first one in a comma.
/// Returned by falling score; of equal scores the lower candidate comes first. `on_text` is called when candidates is 1.
///
/// The form is kept by masking logits: at each place the model chooses among the characters that may stand there. Nothing is
/// looked up in other poems, and nothing is written twice until it fits.
/// Determinism: a function of the model, acrostic and options; not of the number of threads or of the other candidates.
/// Errors: kInvalidArgument for an acrostic that is empty, no UTF-8, or holds characters that are unknown to the model or no
/// Han characters (one message names all of them), for options out of range, and for a poem that is longer than the model's
/// context; kUnsupported when the vocabulary has no token for a mark; kNotFound when the model has no tokenizer. A stop request
/// is no error: `complete` is false.
REGARD_API std::vector<Poem> write_acrostic(const Model& model, std::string_view acrostic, const PoemOptions& options,
                                            const OnPoemText& on_text = {});

}  // namespace regard
