// From what a file says to a tokenizer: every number and name is checked here, whichever format it came from.
#include <algorithm>
#include <unordered_set>

#include "text/tokenizer_impl.h"

namespace regard {
namespace {

/// End of turn by its usual spellings, for files that do not name it.
constexpr std::string_view kEndOfTurn[] = {"<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|end|>"};

Result<Done> check_sizes(const TokenizerSpec& spec) {
  const auto over = [&](std::string_view what, size_t count, size_t limit) {
    return failure(Code::kResourceExhausted, "[build_tokenizer] {}: {} {} are over the limit of {}", spec.origin, count, what, limit);
  };
  if (spec.pieces.empty()) return corrupt("[build_tokenizer] {}: the vocabulary is empty", spec.origin);
  if (spec.pieces.size() > kMaxVocabulary) return over("tokens", spec.pieces.size(), kMaxVocabulary);
  if (spec.added.size() > kMaxVocabulary) return over("added tokens", spec.added.size(), kMaxVocabulary);
  if (spec.normalizer.size() > kMaxSteps || spec.pre_tokenizer.size() > kMaxSteps || spec.decoder.size() > kMaxSteps)
    return over("steps", std::max({spec.normalizer.size(), spec.pre_tokenizer.size(), spec.decoder.size()}), kMaxSteps);
  if (!spec.kinds.empty() && spec.kinds.size() != spec.pieces.size())
    return corrupt("[build_tokenizer] {}: {} kinds for {} tokens", spec.origin, spec.kinds.size(), spec.pieces.size());
  for (const std::string& piece : spec.pieces) {
    if (piece.size() > kMaxPieceBytes) return over("bytes of one token", piece.size(), kMaxPieceBytes);
  }
  return Done{};
}

/// Puts the added tokens into the vocabulary at their ids.
Result<Done> place_added_tokens(TokenizerSpec& spec) {
  std::unordered_set<std::string_view> seen;
  for (const AddedTokenSpec& token : spec.added) {
    if (token.content.empty()) continue;
    if (token.content.size() > kMaxAddedTokenBytes)
      return failure(Code::kResourceExhausted, "[build_tokenizer] {}: an added token of {} bytes is over the limit of {}", spec.origin,
                     token.content.size(), kMaxAddedTokenBytes);
    if (token.id < 0 || static_cast<size_t>(token.id) >= kMaxVocabulary)
      return corrupt("[build_tokenizer] {}: the added token '{}' has id {}, expected 0 to {}", spec.origin, token.content, token.id,
                     kMaxVocabulary - 1);
    if (!seen.insert(token.content).second)
      return corrupt("[build_tokenizer] {}: the added token '{}' is there twice", spec.origin, token.content);
    const auto id = static_cast<size_t>(token.id);
    if (id >= spec.pieces.size()) {
      spec.pieces.resize(id + 1);
      spec.kinds.resize(id + 1, TokenKind::kUnused);
    }
    if (!spec.pieces[id].empty() && spec.pieces[id] != token.content)
      return corrupt("[build_tokenizer] {}: id {} is the added token '{}' and the token '{}'", spec.origin, id, token.content,
                     spec.pieces[id]);
    spec.pieces[id] = token.content;
    if (token.special) {
      spec.kinds[id] = TokenKind::kControl;
    } else if (spec.kinds[id] == TokenKind::kUnused) {
      spec.kinds[id] = TokenKind::kUserDefined;
    }
  }
  return Done{};
}

Result<Done> check_id(const TokenizerSpec& spec, std::optional<int32_t> id, std::string_view what) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < spec.pieces.size())) return Done{};
  return corrupt("[build_tokenizer] {}: the {} token has id {}, expected 0 to {}", spec.origin, what, *id, spec.pieces.size() - 1);
}

Result<Done> check_ids(const TokenizerSpec& spec) {
  REGARD_CHECK(check_id(spec, spec.bos, "bos"));
  REGARD_CHECK(check_id(spec, spec.eos, "eos"));
  REGARD_CHECK(check_id(spec, spec.eot, "end-of-turn"));
  REGARD_CHECK(check_id(spec, spec.unk, "unknown"));
  REGARD_CHECK(check_id(spec, spec.pad, "padding"));
  for (const int32_t id : spec.prefix) REGARD_CHECK(check_id(spec, id, "leading"));
  for (const int32_t id : spec.suffix) REGARD_CHECK(check_id(spec, id, "trailing"));
  return Done{};
}

bool contains_id(const std::vector<int32_t>& ids, std::optional<int32_t> id) {
  return id && std::find(ids.begin(), ids.end(), *id) != ids.end();
}

}  // namespace

Result<Tokenizer> build_tokenizer(TokenizerSpec spec) {
  REGARD_CHECK(check_sizes(spec));
  spec.kinds.resize(spec.pieces.size(), TokenKind::kNormal);
  REGARD_CHECK(place_added_tokens(spec));
  REGARD_CHECK(check_ids(spec));

  auto impl = std::make_shared<Tokenizer::Impl>();
  if (!spec.eot) {
    for (const std::string_view name : kEndOfTurn) {
      const auto token = std::find_if(spec.added.begin(), spec.added.end(), [&](const AddedTokenSpec& t) { return t.content == name; });
      if (token == spec.added.end()) continue;
      spec.eot = token->id;
      break;
    }
  }
  // Whatever a file calls them, the ends of text and turn steer the model: text must not become them by itself.
  for (const auto id : {spec.bos, spec.eos, spec.eot}) {
    if (!id) continue;
    for (AddedTokenSpec& token : spec.added) {
      if (token.id == *id) token.special = true, spec.kinds[static_cast<size_t>(*id)] = TokenKind::kControl;
    }
  }
  impl->special.resize(spec.pieces.size());
  for (size_t id = 0; id < spec.pieces.size(); ++id) impl->special[id] = spec.kinds[id] == TokenKind::kControl;

  REGARD_TRY(impl->vocabulary, Vocabulary::make(std::move(spec.pieces), spec.origin));
  if (const auto* bpe = std::get_if<BpeSpec>(&spec.model)) {
    REGARD_TRY(impl->model, BpeModel::make(*bpe, impl->vocabulary, impl->special, spec.origin));
    if (!spec.unk && bpe->unk_token) spec.unk = impl->vocabulary.find(*bpe->unk_token);
  } else if (const auto* spm = std::get_if<SpmSpec>(&spec.model)) {
    spec.kinds.resize(static_cast<size_t>(impl->vocabulary.size()), TokenKind::kNormal);
    REGARD_TRY(impl->model, SpmModel::make(*spm, impl->vocabulary, spec.kinds, spec.unk, spec.origin));
  } else if (const auto* unigram = std::get_if<UnigramSpec>(&spec.model)) {
    REGARD_TRY(impl->model, UnigramModel::make(*unigram, impl->vocabulary, impl->special, spec.origin));
    if (!spec.unk) spec.unk = unigram->unk_id;
  } else {
    const auto& words = std::get<WordLevelSpec>(spec.model);
    impl->model = WordLevelModel::make(words, impl->vocabulary, impl->special);
    if (const int32_t unk = impl->vocabulary.find(words.unk_token); !spec.unk && unk != kNoToken) spec.unk = unk;
  }
  REGARD_TRY(impl->normalizer, compile_normalizer(spec.normalizer));
  REGARD_TRY(impl->pre_tokenizer, compile_pre_tokenizer(spec.pre_tokenizer));
  REGARD_TRY(impl->decoder, TokenDecoder::make(spec.decoder, spec.joiner, spec.origin));

  std::vector<AddedTokenMatcher::Entry> raw, normalized;
  RegexScratch scratch;
  for (const AddedTokenSpec& token : spec.added) {
    AddedTokenMatcher::Entry entry{token.content, token.id, token.special, token.lstrip, token.rstrip, token.single_word};
    if (token.normalized) {
      entry.text = run_normalizer(impl->normalizer, entry.text, scratch);
      if (entry.text != token.content) impl->normalized_text.emplace(token.id, entry.text);
    }
    (token.normalized ? normalized : raw).push_back(std::move(entry));
  }
  impl->raw_added = AddedTokenMatcher(std::move(raw), spec.added_order);
  impl->normalized_added = AddedTokenMatcher(std::move(normalized), spec.added_order);

  impl->prefix = std::move(spec.prefix);
  impl->suffix = std::move(spec.suffix);
  impl->bos = spec.bos, impl->eos = spec.eos, impl->eot = spec.eot, impl->unk = spec.unk, impl->pad = spec.pad;
  impl->adds_bos = contains_id(impl->prefix, impl->bos);
  impl->adds_eos = contains_id(impl->suffix, impl->eos);
  return Tokenizer(std::move(impl));
}

}  // namespace regard
