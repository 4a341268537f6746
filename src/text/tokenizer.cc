// Encoding: added tokens are cut out, the rest is normalized, cut into pieces and given to the model. Start at encode_text.
#include "regard/tokenizer.h"

#include "base/check.h"
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

namespace regard {
namespace {

constexpr size_t kMaxTextBytes = size_t{1} << 30;  // symbols are counted in 32 bits, and a byte may take two in the byte alphabet

using Allowed = AddedTokenMatcher::Allowed;

/// One encoding under way.
class Encoding {
 public:
  explicit Encoding(const Tokenizer::Impl& impl) : impl_(impl) {}

  void text(std::string_view text, const Allowed& allowed) {
    size_t at = 0;
    for (const AddedMatch& match : impl_.raw_added.find(text, allowed)) {
      segment(text, at, match.begin, allowed);
      ids.push_back(match.id);
      at = match.end;
    }
    segment(text, at, text.size(), allowed);
  }

  std::vector<int32_t> ids;

 private:
  /// text[begin, end), in which no raw added token is left.
  void segment(std::string_view text, size_t begin, size_t end, const Allowed& allowed) {
    if (begin >= end) return;
    std::string normalized = run_normalizer(impl_.normalizer, text.substr(begin, end - begin), scratch_);
    size_t at = 0;
    if (!impl_.normalized_added.empty()) {
      // Places in the normalized text are no places in the original: special tokens are recognised here only when the whole
      // segment may hold them.
      const Allowed here = allowed.holds(begin, end) ? Allowed::everywhere() : Allowed::nowhere();
      for (const AddedMatch& match : impl_.normalized_added.find(normalized, here)) {
        pieces(normalized.substr(at, match.begin - at), begin == 0 && at == 0);
        ids.push_back(match.id);
        at = match.end;
      }
    }
    pieces(at == 0 ? std::move(normalized) : normalized.substr(at), begin == 0 && at == 0);
  }

  void pieces(std::string text, bool first) {
    if (text.empty()) return;
    const TextPieces cut = run_pre_tokenizer(impl_.pre_tokenizer, std::move(text), first ? InputStart::kYes : InputStart::kNo, scratch_);
    for (const Piece& piece : cut.pieces) {
      std::visit([&](const auto& model) { model.encode(cut.view(piece), impl_.vocabulary, merger_, ids); }, impl_.model);
    }
  }

  const Tokenizer::Impl& impl_;
  RegexScratch scratch_;
  Merger merger_;
};

std::vector<int32_t> encode_text(const Tokenizer::Impl& impl, std::string_view text, const Allowed& allowed, AddSpecial add) {
  if (text.size() > kMaxTextBytes)
    fail(Code::kResourceExhausted, "[Tokenizer::encode] a text of {} bytes is over the limit of {}", text.size(), kMaxTextBytes);
  Encoding encoding(impl);
  if (add == AddSpecial::kAsModel) encoding.ids = impl.prefix;
  encoding.text(text, allowed);
  if (add == AddSpecial::kAsModel) encoding.ids.insert(encoding.ids.end(), impl.suffix.begin(), impl.suffix.end());
  return std::move(encoding.ids);
}

}  // namespace

void Tokenizer::Impl::check_id(int32_t id, std::string_view function) const {
  require(vocabulary.has(id), "[{}] id {} is outside the vocabulary, expected 0 to {}", function, id, vocabulary.size() - 1);
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  const Allowed allowed = options.special == SpecialTokens::kParse ? Allowed::everywhere() : Allowed::nowhere();
  return encode_text(*impl_, text, allowed, options.add);
}

std::vector<int32_t> Tokenizer::encode(std::span<const PromptSegment> segments, AddSpecial add) const {
  std::string text;
  std::vector<std::pair<size_t, size_t>> stretches;
  for (const PromptSegment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (segment.source != PromptSegment::Source::kTemplate || segment.text.empty()) continue;
    if (!stretches.empty() && stretches.back().second == begin) {
      stretches.back().second = text.size();
    } else {
      stretches.emplace_back(begin, text.size());
    }
  }
  return encode_text(*impl_, text, Allowed(stretches), add);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  TokenDecoder::State state{.invalid = options.invalid};
  std::string bytes;
  for (const int32_t id : ids) {
    impl_->check_id(id, "Tokenizer::decode");
    if (options.special == SpecialText::kSkip && is_special(id)) continue;
    if (!impl_->vocabulary.piece(id).empty()) impl_->decoder.append(impl_->decoded_piece(id), state, bytes);
  }
  impl_->decoder.finish(state, bytes);
  bytes.resize(bytes.size() - impl_->decoder.strippable_end(bytes));
  if (options.invalid == InvalidUtf8::kKeep || valid_prefix(bytes) == bytes.size()) return bytes;
  std::string text;
  append_replacing(text, bytes, TextEnd::kFinal);
  return text;
}

int32_t Tokenizer::vocab_size() const noexcept { return impl_->vocabulary.size(); }

const std::string& Tokenizer::token_text(int32_t id) const {
  impl_->check_id(id, "Tokenizer::token_text");
  return impl_->vocabulary.piece(id);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  impl_->check_id(id, "Tokenizer::token_bytes");
  TokenDecoder::State inside{.first = false, .start_done = true};
  std::string bytes;
  impl_->decoder.append(impl_->decoded_piece(id), inside, bytes);
  impl_->decoder.finish(inside, bytes);
  return bytes;
}

bool Tokenizer::is_special(int32_t id) const {
  impl_->check_id(id, "Tokenizer::is_special");
  return impl_->special[static_cast<size_t>(id)];
}

std::optional<int32_t> Tokenizer::find(std::string_view piece) const {
  const int32_t id = impl_->vocabulary.find(piece);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

std::optional<int32_t> Tokenizer::bos() const noexcept { return impl_->bos; }
std::optional<int32_t> Tokenizer::eos() const noexcept { return impl_->eos; }
std::optional<int32_t> Tokenizer::eot() const noexcept { return impl_->eot; }
std::optional<int32_t> Tokenizer::unk() const noexcept { return impl_->unk; }
std::optional<int32_t> Tokenizer::pad() const noexcept { return impl_->pad; }
bool Tokenizer::adds_bos() const noexcept { return impl_->adds_bos; }
bool Tokenizer::adds_eos() const noexcept { return impl_->adds_eos; }

}  // namespace regard
