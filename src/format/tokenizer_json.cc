// Start at tokenizer_json_spec. Each section is a component or a "Sequence" of components; a component is told by its "type".
#include "format/tokenizer_json.h"

#include <algorithm>
#include <string>

#include "format/json_reader.h"
#include "format/tokenizer_json_steps.h"

namespace regard {
namespace {

// Gemma's file has 33 MB and 2.3 million values; the largest vocabulary and list of merges that are accepted need about this.
constexpr JsonLimits kLimits{.max_bytes = size_t{256} << 20, .max_depth = 64, .max_values = 32'000'000, .max_keys = 10'000'000};

Result<Done> read_merges(const JsonArray& array, BpeSpec& bpe) {
  bpe.merges.reserve(array.size());
  for (const JsonValue merge : array) {
    if (bpe.merges.size() == kMaxMerges) return merge.refuse(fmt::format("more than {} merges", kMaxMerges));
    if (merge.type() == JsonType::kString) {
      REGARD_TRY(const std::string_view text, merge.as_string());
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
        return merge.refuse("expected two tokens with one space between");
      bpe.merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else {
      REGARD_TRY(const JsonArray pair, merge.as_array());
      if (pair.size() != 2) return merge.refuse("expected a pair of tokens");
      auto part = pair.begin();
      REGARD_TRY(const std::string_view left, (*part).as_string());
      REGARD_TRY(const std::string_view right, (*++part).as_string());
      bpe.merges.emplace_back(left, right);
    }
  }
  return Done{};
}

Result<Done> read_vocabulary(const JsonObject& vocabulary, TokenizerSpec& spec) {
  constexpr int64_t max_id = static_cast<int64_t>(kMaxVocabulary) - 1;
  for (const JsonMember member : vocabulary) {
    REGARD_TRY(const int64_t id, member.value.as_integer(0, max_id));
    const auto index = static_cast<size_t>(id);
    if (index >= spec.pieces.size()) {
      spec.pieces.resize(index + 1);
      spec.kinds.resize(index + 1, TokenKind::kUnused);
    }
    if (spec.kinds[index] != TokenKind::kUnused) return member.value.refuse("another token has this id");
    spec.pieces[index] = std::string(member.key);
    spec.kinds[index] = TokenKind::kNormal;
  }
  return Done{};
}

Result<Done> read_word_level(const JsonObject& model, TokenizerSpec& spec) {
  REGARD_TRY(const JsonValue unk, model.get("unk_token"));
  REGARD_TRY(const std::string_view unk_token, unk.as_string());
  REGARD_TRY(const JsonValue vocabulary, model.get("vocab"));
  REGARD_TRY(const JsonObject tokens, vocabulary.as_object());
  REGARD_CHECK(read_vocabulary(tokens, spec));
  spec.model = WordLevelSpec{std::string(unk_token)};
  return Done{};
}

// Pairs of a piece and its score; the place is the id.
Result<Done> read_unigram(const JsonObject& model, TokenizerSpec& spec) {
  constexpr double kMaxScore = 1e30;
  UnigramSpec unigram;
  REGARD_TRY(const JsonValue vocabulary, model.get("vocab"));
  REGARD_TRY(const JsonArray pairs, vocabulary.as_array());
  if (pairs.size() > kMaxVocabulary) return vocabulary.refuse(fmt::format("more than {} tokens", kMaxVocabulary));
  for (const JsonValue value : pairs) {
    REGARD_TRY(const JsonArray pair, value.as_array());
    if (pair.size() != 2) return value.refuse("expected a pair of a token and its score");
    auto part = pair.begin();
    REGARD_TRY(const std::string_view piece, (*part).as_string());
    REGARD_TRY(const double score, (*++part).as_number(-kMaxScore, kMaxScore));
    spec.pieces.emplace_back(piece);
    spec.kinds.push_back(piece.empty() ? TokenKind::kUnused : TokenKind::kNormal);
    unigram.scores.push_back(score);
  }
  REGARD_TRY(const auto unk, model.optional_integer("unk_id", 0, static_cast<int64_t>(kMaxVocabulary) - 1));
  if (unk) unigram.unk_id = static_cast<int32_t>(*unk);
  REGARD_TRY(const auto byte_fallback, model.optional_bool("byte_fallback"));
  unigram.byte_fallback = byte_fallback.value_or(false);
  spec.model = std::move(unigram);
  return Done{};
}

Result<Done> read_model(const JsonObject& model, TokenizerSpec& spec) {
  REGARD_TRY(const auto type, model.optional_string("type"));
  if (type && *type == "WordLevel") return read_word_level(model, spec);
  if (type && *type == "Unigram") return read_unigram(model, spec);
  // Files of the first versions name no type; a list of merges tells BPE.
  if (type ? *type != "BPE" : !model.find("merges"))
    return failure(Code::kUnsupported, "{}", model.value().refuse(fmt::format("the model '{}' is not supported; known are BPE, Unigram and WordLevel",
                                                                              type.value_or("without a type"))).message);
  BpeSpec bpe;
  REGARD_TRY(const auto dropout, model.optional_number("dropout", 0, 1));
  if (dropout.value_or(0) != 0) return failure(Code::kUnsupported, "{}", model.value().refuse("dropout is for training").message);
  REGARD_TRY(const auto unk, model.optional_string("unk_token"));
  if (unk) bpe.unk_token = std::string(*unk);
  REGARD_TRY(const auto prefix, model.optional_string("continuing_subword_prefix"));
  REGARD_TRY(const auto suffix, model.optional_string("end_of_word_suffix"));
  REGARD_TRY(const auto fuse_unk, model.optional_bool("fuse_unk"));
  REGARD_TRY(const auto byte_fallback, model.optional_bool("byte_fallback"));
  REGARD_TRY(const auto ignore_merges, model.optional_bool("ignore_merges"));
  bpe.continuing_subword_prefix = std::string(prefix.value_or(""));
  bpe.end_of_word_suffix = std::string(suffix.value_or(""));
  bpe.fuse_unk = fuse_unk.value_or(false);
  bpe.byte_fallback = byte_fallback.value_or(false);
  bpe.ignore_merges = ignore_merges.value_or(false);
  REGARD_TRY(const JsonValue vocabulary, model.get("vocab"));
  REGARD_TRY(const JsonObject tokens, vocabulary.as_object());
  REGARD_CHECK(read_vocabulary(tokens, spec));
  REGARD_TRY(const JsonValue merges, model.get("merges"));
  REGARD_TRY(const JsonArray pairs, merges.as_array());
  REGARD_CHECK(read_merges(pairs, bpe));
  spec.model = std::move(bpe);
  return Done{};
}

Result<Done> read_added_tokens(const JsonArray& array, TokenizerSpec& spec) {
  for (const JsonValue value : array) {
    REGARD_TRY(const JsonObject object, value.as_object());
    AddedTokenSpec token;
    REGARD_TRY(const JsonValue id, object.get("id"));
    REGARD_TRY(const int64_t number, id.as_integer(0, static_cast<int64_t>(kMaxVocabulary) - 1));
    token.id = static_cast<int32_t>(number);
    REGARD_TRY(const JsonValue content, object.get("content"));
    REGARD_TRY(const std::string_view text, content.as_string());
    token.content = std::string(text);
    const auto flag = [&](std::string_view key, bool& out, bool usual) -> Result<Done> {
      REGARD_TRY(const auto given, object.optional_bool(key));
      out = given.value_or(usual);
      return Done{};
    };
    REGARD_CHECK(flag("special", token.special, false));
    REGARD_CHECK(flag("lstrip", token.lstrip, false));
    REGARD_CHECK(flag("rstrip", token.rstrip, false));
    REGARD_CHECK(flag("single_word", token.single_word, false));
    REGARD_CHECK(flag("normalized", token.normalized, !token.special));
    spec.added.push_back(std::move(token));
  }
  return Done{};
}

}  // namespace

Result<TokenizerSpec> tokenizer_json_spec(std::string_view text, std::string_view name) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, name, kLimits));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  TokenizerSpec spec;
  spec.origin = std::string(name);
  REGARD_TRY(const JsonValue model, root.get("model"));
  REGARD_TRY(const JsonObject model_object, model.as_object());
  REGARD_CHECK(read_model(model_object, spec));
  REGARD_TRY(const auto added, root.optional_array("added_tokens"));
  if (added) REGARD_CHECK(read_added_tokens(*added, spec));
  REGARD_CHECK(read_normalizer(root, spec));
  REGARD_CHECK(read_pre_tokenizer(root, spec));
  REGARD_CHECK(read_post_processor(root, spec));
  REGARD_CHECK(read_decoder(root, spec));
  // Where nothing else says which tokens begin and end a text, those that the template puts there do.
  if (spec.prefix.size() == 1) spec.bos = spec.prefix[0];
  if (spec.suffix.size() == 1) spec.eos = spec.suffix[0];
  return spec;
}

Result<Done> apply_tokenizer_config(std::string_view text, std::string_view name, TokenizerSpec& spec) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, name, kLimits));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  const auto read = [&](std::string_view key, std::optional<int32_t>& out) -> Result<Done> {
    const auto value = root.find(key);
    if (!value || value->is_null()) return Done{};
    JsonValue content = *value;
    if (content.type() == JsonType::kObject) {
      REGARD_TRY(const JsonObject token, content.as_object());
      REGARD_TRY(content, token.get("content"));
    }
    REGARD_TRY(const std::string_view piece, content.as_string());
    for (const AddedTokenSpec& token : spec.added) {
      if (token.content == piece) {
        out = token.id;
        return Done{};
      }
    }
    const auto found = std::find(spec.pieces.begin(), spec.pieces.end(), piece);
    if (found != spec.pieces.end()) out = static_cast<int32_t>(found - spec.pieces.begin());
    return Done{};  // a name without a token (a padding token that was never used) is no token
  };
  REGARD_CHECK(read("bos_token", spec.bos));
  REGARD_CHECK(read("eos_token", spec.eos));
  REGARD_CHECK(read("unk_token", spec.unk));
  REGARD_CHECK(read("pad_token", spec.pad));
  return Done{};
}

}  // namespace regard
