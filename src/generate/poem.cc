// The form is a set of allowed ids for each place of a poem (Form); the loop of generate.cc does the writing, and what is
// left is counting. Start at write_acrostic().
#include "regard/poem.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "generate/options.h"
#include "generate/verse_vocabulary.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr int64_t kMaxCandidates = 1024;

// A character in a message: as it is and by number, for what cannot be seen or told apart.
std::string named(char32_t c) {
  std::string text;
  if (c > 0x20 && !(c >= 0x7F && c < 0xA0)) append_utf8(text, c);
  return fmt::format("{}{}U+{:04X}", text, text.empty() ? "" : " ", static_cast<uint32_t>(c));
}

std::string named(const std::vector<char32_t>& characters) {
  std::vector<std::string> names;
  for (char32_t c : characters) names.push_back(named(c));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::vector<char32_t> characters_of(std::string_view text) {
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_char(text.substr(at));
    require(c.valid(), "[write_acrostic] the acrostic is no UTF-8 from byte {} on", at);
    characters.push_back(c.code_point);
    at += c.size;
  }
  require(!characters.empty(), "[write_acrostic] the acrostic is empty; give the characters that begin the verses");
  return characters;
}

// The places of a poem: of each verse its given character, the free ones, and the mark.
class Form {
 public:
  Form(const VerseVocabulary& vocabulary, std::string_view acrostic, int64_t width) : free_(vocabulary.han()), width_(width) {
    const std::vector<char32_t> asked = characters_of(acrostic);
    // No character would do with such a model, so it is the model that is to be changed, not the acrostic.
    if (free_.empty())
      fail(Code::kInvalidArgument, "[write_acrostic] this model's tokens {}; take a model of Chinese verse whose tokens are characters, such as models/poet",
           vocabulary.only_characters() ? "have no Han characters" : "are not characters, and none of them is a Han character");
    std::vector<char32_t> unknown, others;
    for (char32_t c : asked) {
      const std::optional<int32_t> id = vocabulary.find(c);
      std::vector<char32_t>* refused = !id ? &unknown : !is_han(c) ? &others : nullptr;
      if (refused == nullptr) given_.push_back(*id);
      else if (std::find(refused->begin(), refused->end(), c) == refused->end()) refused->push_back(c);
    }
    require(unknown.empty(), "[write_acrostic] unknown to this model: {}; {}", named(unknown),
            vocabulary.only_characters() ? "take characters of its training text (a model of simplified characters knows no traditional ones)"
                                         : "its tokens are not characters; take a model of Chinese verse whose tokens are, such as models/poet");
    require(others.empty(), "[write_acrostic] no Han characters: {}; a verse begins with one", named(others));
    for (const char32_t mark : {kVerseComma, kVerseStop}) {
      const std::optional<int32_t> id = vocabulary.find(mark);
      if (!id)
        fail(Code::kUnsupported, "[write_acrostic] this model has no token for {}, which ends a verse; take a model of Chinese verse whose tokens are characters",
             named(mark));
      marks_.push_back(*id);
    }
  }

  int64_t size() const { return static_cast<int64_t>(given_.size()) * (width_ + 1); }
  int64_t verse(int64_t place) const { return place / (width_ + 1); }
  bool is_free(int64_t place) const { return column(place) > 0 && column(place) < width_; }
  bool is_mark(int64_t place) const { return column(place) == width_; }

  // What may stand at a place; empty behind the end.
  std::span<const int32_t> allowed(int64_t place) const {
    if (place >= size()) return {};
    if (is_free(place)) return free_;
    const auto v = static_cast<size_t>(verse(place));
    return {is_mark(place) ? &marks_[v % 2] : &given_[v], 1};
  }

 private:
  int64_t column(int64_t place) const { return place % (width_ + 1); }

  const std::vector<int32_t>& free_;
  std::vector<int32_t> given_, marks_;
  int64_t width_;
};

void check(const PoemOptions& o) {
  require(o.form == VerseForm::kFive || o.form == VerseForm::kSeven, "[write_acrostic] a form of {} characters; expected 5 or 7", static_cast<int>(o.form));
  require(o.candidates >= 1 && o.candidates <= kMaxCandidates, "[write_acrostic] {} candidates; expected 1 to {}", o.candidates, kMaxCandidates);
  require(o.candidates == 1 || o.sampling.temperature != 0,
          "[write_acrostic] {} candidates at temperature 0 would all be the same; ask for one, or for a temperature above 0", o.candidates);
  require(std::isfinite(o.repetition_cost) && o.repetition_cost >= 0, "[write_acrostic] a repetition costs {} nats; expected a finite number, 0 or more",
          o.repetition_cost);
}

// Poems stand one to a line in the training text, so the end of a line is what comes before one.
std::vector<int32_t> start_of(const Tokenizer& tokenizer, const VerseVocabulary& vocabulary) {
  for (const std::optional<int32_t>& id : {vocabulary.find(U'\n'), tokenizer.bos(), tokenizer.eos()})
    if (id) return {*id};
  return {};
}

// See Poem::repetitions.
bool is_repetition(const Form& form, std::span<const int32_t> ids, int64_t place) {
  const auto end = ids.begin() + place;
  const auto before = std::find(ids.begin(), end, *end);
  return before != end && !(before + 1 == end && form.verse(place - 1) == form.verse(place));
}

void rate(Poem& poem, const Form& form, std::span<const double> logprobs, double repetition_cost) {
  int64_t free = 0;
  double sum = 0;
  for (int64_t place = 0; place < static_cast<int64_t>(poem.ids.size()); ++place) {
    if (!form.is_free(place)) continue;
    ++free;
    sum += logprobs[static_cast<size_t>(place)];
    poem.repetitions += is_repetition(form, poem.ids, place) ? 1 : 0;
  }
  if (free == 0) return;
  poem.mean_logprob = sum / static_cast<double>(free);
  poem.score = poem.mean_logprob - repetition_cost * static_cast<double>(poem.repetitions) / static_cast<double>(free);
}

void write_verses(Poem& poem, const Form& form, const Tokenizer& tokenizer) {
  for (int64_t place = 0; place < static_cast<int64_t>(poem.ids.size()); ++place) {
    if (static_cast<int64_t>(poem.verses.size()) == form.verse(place)) poem.verses.emplace_back();
    const std::string character = tokenizer.token_bytes(poem.ids[static_cast<size_t>(place)]);
    poem.verses.back() += character;
    poem.text += character;
  }
}

}  // namespace

std::vector<Poem> write_acrostic(const Model& model, std::string_view acrostic, const PoemOptions& options, const OnPoemText& on_text) {
  check(options);
  const Tokenizer& tokenizer = model.tokenizer();
  const VerseVocabulary vocabulary(tokenizer);
  const Form form(vocabulary, acrostic, static_cast<int64_t>(options.form));
  const std::vector<int32_t> start = start_of(tokenizer, vocabulary);
  const auto begun = static_cast<int64_t>(start.size());
  require(begun + form.size() <= model.context(),
          "[write_acrostic] this poem makes a text of {} tokens, the context has room for {}; give fewer characters{}", begun + form.size(),
          model.context(), larger_context_advice(model));

  // A prompt is not empty, so the first given character belongs to it: it is nobody's choice anyway.
  std::vector<int32_t> prompt = start;
  prompt.push_back(form.allowed(0).front());
  GenerateOptions generation;
  generation.sampling = options.sampling;
  generation.streams = GenerateOptions::Streams::kByIndex;
  generation.max_tokens = form.size() - 1;
  generation.end_of_text = GenerateOptions::EndOfText::kIgnore;
  generation.top_logprobs = 0;
  generation.stop = options.stop;
  generation.allowed = [&](const TokenChoice& choice) {
    return std::optional(form.allowed(static_cast<int64_t>(choice.history.size()) - begun));
  };
  OnToken on_token;
  if (on_text && options.candidates == 1) {
    on_text(tokenizer.token_bytes(prompt.back()));
    on_token = [&](const TokenEvent& event) {
      on_text(tokenizer.token_bytes(event.id));
      return true;
    };
  }
  const std::vector<std::vector<int32_t>> prompts(static_cast<size_t>(options.candidates), prompt);
  const std::vector<Generation> texts = generate(model, prompts, generation, on_token);

  std::vector<Poem> poems(texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    Poem& poem = poems[i];
    poem.candidate = static_cast<int64_t>(i);
    poem.start = start;
    poem.ids = {prompt.back()};
    poem.ids.insert(poem.ids.end(), texts[i].ids.begin(), texts[i].ids.end());
    poem.complete = static_cast<int64_t>(poem.ids.size()) == form.size();
    std::vector<double> logprobs = {0};
    logprobs.insert(logprobs.end(), texts[i].logprobs.begin(), texts[i].logprobs.end());
    rate(poem, form, logprobs, options.repetition_cost);
    write_verses(poem, form, tokenizer);
  }
  std::sort(poems.begin(), poems.end(), [](const Poem& a, const Poem& b) { return a.score != b.score ? a.score > b.score : a.candidate < b.candidate; });
  return poems;
}

}  // namespace regard
