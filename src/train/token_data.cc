#include "train/token_data.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "format/file_source.h"
#include "format/json_reader.h"
#include "format/names.h"
#include "format/npy.h"
#include "mask/hash.h"
#include "text/utf8.h"
#include "train/inner_message.h"

namespace regard::train_data {

struct TokenData::Store {
  // One file of ids: in memory, or the bytes of a mapping, which need not be aligned.
  struct Segment {
    int64_t begin = 0, size = 0;
    std::vector<int32_t> ids;
    FileBytes file;
    size_t offset = 0;
    size_t width = 0;  // bytes of an id in `file`; 0: `ids` holds them
  };
  std::vector<Segment> segments;
  std::vector<int64_t> document_starts;
  int64_t size = 0;

  void add(Segment segment) {
    segment.begin = size;
    size += segment.size;
    segments.push_back(std::move(segment));
  }

  void copy(int64_t first, std::span<int32_t> out) const {
    auto at = std::upper_bound(segments.begin(), segments.end(), first, [](int64_t place, const Segment& s) { return place < s.begin; });
    if (at != segments.begin()) --at;
    for (; !out.empty(); ++at) {
      const auto skip = static_cast<size_t>(first - at->begin);
      const size_t n = std::min(out.size(), static_cast<size_t>(at->size) - skip);
      if (at->width == 0) {
        std::copy_n(at->ids.begin() + static_cast<std::ptrdiff_t>(skip), n, out.begin());
      } else if (at->width == sizeof(int32_t)) {
        std::memcpy(out.data(), at->file.bytes().data() + at->offset + skip * sizeof(int32_t), n * sizeof(int32_t));
      } else {
        for (size_t i = 0; i < n; ++i) {
          uint16_t id;
          std::memcpy(&id, at->file.bytes().data() + at->offset + (skip + i) * sizeof id, sizeof id);
          out[i] = id;
        }
      }
      first += static_cast<int64_t>(n);
      out = out.subspan(n);
    }
  }
};

namespace {

using Segment = TokenData::Store::Segment;
constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;
constexpr int64_t kPiece = 1 << 16;

// Calls f(place, ids) for all ids, in pieces.
template <class F>
void for_pieces(const TokenData& data, F&& f) {
  std::vector<int32_t> piece(static_cast<size_t>(std::min(kPiece, data.size())));
  for (int64_t at = 0; at < data.size(); at += kPiece) {
    const auto ids = std::span(piece).first(static_cast<size_t>(std::min(kPiece, data.size() - at)));
    data.copy(at, ids);
    f(at, std::span<const int32_t>(ids));
  }
}

bool has_ending(std::string_view path, std::string_view ending) { return path.size() > ending.size() && path.ends_with(ending); }

TrainConfig::Data::Format format_of(const std::string& path, const TrainConfig::Data& config) {
  using Format = TrainConfig::Data::Format;
  if (config.format != Format::kAuto) return config.format;
  if (has_ending(path, ".jsonl")) return Format::kJsonLines;
  return has_ending(path, ".npy") || has_ending(path, ".bin") ? Format::kTokens : Format::kText;
}

Segment map_tokens(const std::string& path, const TrainConfig::Data& config) {
  File file = File::open(path).value_or_throw();
  Segment segment;
  segment.width = config.token_type == TrainConfig::Data::TokenType::kUint16 ? sizeof(uint16_t) : sizeof(int32_t);
  if (has_ending(path, ".npy")) {
    const NpyHead head = read_npy_head(*FileSource::open(path).value_or_throw(), path).value_or_throw();
    if (head.type != DType::kU16 && head.type != DType::kI32) {
      fail(Code::kInvalidArgument, "[train] '{}' holds {}; expected uint16 or int32", path, info(head.type).name);
    }
    if (head.shape.size() != 1) fail(Code::kInvalidArgument, "[train] '{}' has {} axes; expected one", path, head.shape.size());
    segment.offset = static_cast<size_t>(head.data_begin);
    segment.width = static_cast<size_t>(info(head.type).bytes);
  }
  if ((file.size() - segment.offset) % segment.width != 0) {
    fail(Code::kCorruptData, "[train] '{}' has {} bytes, which is no whole number of ids of {} bytes", path, file.size(), segment.width);
  }
  segment.size = static_cast<int64_t>((file.size() - segment.offset) / segment.width);
  if (segment.size > 0) segment.file = map_file(file).value_or_throw();
  return segment;
}

// Makes ids of texts. Records have their prefix and suffix, which alone may name special tokens.
class TextReader {
 public:
  TextReader(const TrainConfig::Data& config, const Tokenizer& tokenizer, TokenData::Store& store, const StopToken* stop)
      : config_(config), tokenizer_(tokenizer), store_(store), stop_(stop) {
  }

  void read(const std::string& path, TrainConfig::Data::Format format) {
    const FileBytes bytes = read_file(path, kMaxTextBytes).value_or_throw();
    const std::string_view text(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
    const bool json = format == TrainConfig::Data::Format::kJsonLines;
    if (json || config_.unit == TrainConfig::Data::Unit::kLine) {
      prefix_ = encode_frame("data.prefix", config_.prefix, path);
      suffix_ = encode_frame("data.suffix", config_.suffix, path);
      read_lines(path, text, json);
    } else {
      begin_document();
      append(encode(text, path, 0));
    }
    Segment segment;
    segment.size = static_cast<int64_t>(ids_.size());
    segment.ids = std::exchange(ids_, {});
    store_.add(std::move(segment));
  }

 private:
  void read_lines(const std::string& path, std::string_view text, bool json) {
    const size_t whole = text.size();
    for (int64_t number = 1; !text.empty(); ++number) {
      if (stop_ != nullptr && stop_->stop_requested()) fail(Code::kCancelled, "[train] stopped while reading '{}'", path);
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      const size_t offset = whole - text.size();
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (line.empty()) continue;
      begin_document();
      append(prefix_);
      if (json) append(encode(field_of(line, fmt::format("{}:{}", path, number)), fmt::format("{}:{}", path, number), 0));
      else append(encode(line, path, offset));
      append(suffix_);
    }
  }

  std::string field_of(std::string_view line, const std::string& place) const {
    const JsonDocument document = JsonDocument::parse(line, place).value_or_throw();
    const JsonObject object = document.root().as_object().value_or_throw();
    return std::string(object.get(config_.field).value_or_throw().as_string().value_or_throw());
  }

  // A text that the tokenizer has no tokens for: its name, and the byte where it stops to be text.
  std::vector<int32_t> encode(std::string_view text, const std::string& name, size_t offset) const {
    try {
      return tokenizer_.encode(text);
    } catch (const Error& error) {
      const size_t valid = valid_prefix(text);
      if (valid < text.size()) fail(Code::kCorruptData, "[train] '{}' is not UTF-8 at byte {}, and the tokenizer has no token for single bytes", name, offset + valid);
      fail(error.code(), "[train] '{}': {}", name, inner_message(error.what()));
    }
  }

  std::vector<int32_t> encode_frame(std::string_view field, const std::string& text, const std::string& path) const {
    try {
      return tokenizer_.encode(text, {.special = SpecialTokens::kParse});
    } catch (const Error& error) {
      fail(error.code(), "[train] {}, which stands at each line of '{}', cannot be read with data.tokenizer '{}': {}. Set {} to another text, or to nothing", field, path,
           config_.tokenizer, inner_message(error.what()), field);
    }
  }

  void begin_document() { store_.document_starts.push_back(store_.size + static_cast<int64_t>(ids_.size())); }
  void append(const std::vector<int32_t>& ids) { ids_.insert(ids_.end(), ids.begin(), ids.end()); }

  const TrainConfig::Data& config_;
  const Tokenizer& tokenizer_;
  TokenData::Store& store_;
  const StopToken* stop_;
  std::vector<int32_t> prefix_, suffix_, ids_;
};

}  // namespace

TokenData::TokenData(std::shared_ptr<const Store> store) : store_(std::move(store)), end_(store_->size) {}

TokenData::TokenData(std::vector<int32_t> ids, std::vector<int64_t> document_starts) {
  auto store = std::make_shared<Store>();
  Segment segment;
  segment.size = static_cast<int64_t>(ids.size());
  segment.ids = std::move(ids);
  store->add(std::move(segment));
  store->document_starts = std::move(document_starts);
  store_ = std::move(store);
  end_ = store_->size;
}

void TokenData::copy(int64_t first, std::span<int32_t> out) const {
  require(first >= 0 && first + static_cast<int64_t>(out.size()) <= size(), "[TokenData::copy] [{}, {}) of {} tokens", first,
          first + static_cast<int64_t>(out.size()), size());
  store_->copy(begin_ + first, out);
}

bool TokenData::has_documents() const noexcept { return store_->document_starts.size() > 1; }

TokenData::Document TokenData::document(int64_t at) const {
  const std::vector<int64_t>& starts = store_->document_starts;
  const auto next = std::upper_bound(starts.begin(), starts.end(), begin_ + at);
  Document found;
  found.number = std::max<int64_t>(next - starts.begin(), 1) - 1;
  found.begin = (next == starts.begin() ? 0 : *(next - 1)) - begin_;
  found.end = (next == starts.end() ? store_->size : *next) - begin_;
  return found;
}

TokenData TokenData::part(int64_t first, int64_t end) const {
  require(first >= 0 && first <= end && end <= size(), "[TokenData::part] [{}, {}) of {} tokens", first, end, size());
  TokenData part = *this;
  part.begin_ = begin_ + first;
  part.end_ = begin_ + end;
  return part;
}

int64_t TokenData::cut(double share) const {
  if (!has_documents()) return static_cast<int64_t>(static_cast<double>(size()) * (1 - share));
  const std::vector<int64_t>& starts = store_->document_starts;
  const auto kept = static_cast<size_t>(static_cast<double>(starts.size()) * (1 - share));
  return (kept < starts.size() ? starts[kept] : store_->size) - begin_;
}

uint64_t TokenData::hash() const {
  ContentHash hash(1);
  for_pieces(*this, [&](int64_t, std::span<const int32_t> ids) { hash.add_all(ids.data(), ids.size()); });
  hash.add_all(store_->document_starts.data(), store_->document_starts.size());
  return hash.value();
}

TokenData load_tokens(const std::vector<std::string>& files, const TrainConfig::Data& config, const Tokenizer* tokenizer, int64_t vocab_size,
                      const StopToken* stop) {
  auto store = std::make_shared<TokenData::Store>();
  for (const std::string& path : files) {
    const auto format = format_of(path, config);
    if (format == TrainConfig::Data::Format::kTokens) {
      store->document_starts.push_back(store->size);
      store->add(map_tokens(path, config));
    } else {
      const File there = File::open(path).value_or_throw();  // a wrong name is said before a tokenizer is asked for
      if (tokenizer == nullptr) fail(Code::kInvalidArgument, "[train] '{}' is text; set data.tokenizer to a tokenizer.json", path);
      TextReader(config, *tokenizer, *store, stop).read(path, format);
    }
  }
  if (store->size == 0) fail(Code::kInvalidArgument, "[train] there is no token in {}", fmt::join(files, ", "));
  TokenData data(std::move(store));
  const int64_t limit = vocab_size > 0 ? vocab_size : tokenizer != nullptr ? tokenizer->vocab_size() : INT32_MAX;
  for_pieces(data, [&](int64_t at, std::span<const int32_t> ids) {
    if (stop != nullptr && stop->stop_requested()) fail(Code::kCancelled, "[train] stopped while reading the data");
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] < 0 || ids[i] >= limit) {
        fail(Code::kInvalidArgument, "[train] token {} of {} is {}; the vocabulary has {} ids", at + static_cast<int64_t>(i), fmt::join(files, ", "),
             ids[i], limit);
      }
    }
  });
  return data;
}

int64_t smallest_vocabulary(const TokenData& data) {
  int32_t largest = 0;
  for_pieces(data, [&](int64_t, std::span<const int32_t> ids) { largest = std::max(largest, *std::max_element(ids.begin(), ids.end())); });
  return int64_t{largest} + 1;
}

}  // namespace regard::train_data
