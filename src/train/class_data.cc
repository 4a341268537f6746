#include "train/class_data.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "base/check.h"
#include "format/json_reader.h"
#include "mask/hash.h"
#include "runtime/file.h"
#include "train/inner_message.h"
#include "train/permutation.h"

namespace regard::train_data {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{4} << 30;

std::optional<int64_t> whole_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// Every name once. Classes that are numbers are in their order, so that 0, 1, ... have those places.
std::vector<std::string> sorted_names(std::vector<std::string> names) {
  const bool numbers = std::all_of(names.begin(), names.end(), [](const std::string& name) { return whole_number(name).has_value(); });
  std::sort(names.begin(), names.end(), [numbers](const std::string& a, const std::string& b) {
    return numbers && *whole_number(a) != *whole_number(b) ? *whole_number(a) < *whole_number(b) : a < b;
  });
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// Texts with the names of their classes; what the names are numbered by is known when all are read.
struct NamedTexts {
  ClassTexts texts;
  std::vector<std::string> names;
};

std::string class_of(const JsonObject& line, const std::string& member) {
  const JsonValue value = line.get(member).value_or_throw();
  if (value.type() == JsonType::kInteger) return fmt::format("{}", value.as_integer().value_or_throw());
  return std::string(value.as_string().value_or_throw());
}

class LineReader {
 public:
  LineReader(const TrainConfig& config, const Tokenizer& tokenizer, const StopToken* stop) : config_(config), tokenizer_(tokenizer), stop_(stop) {}

  void read(const std::string& path, NamedTexts& out) const {
    if (config_.data.format != TrainConfig::Data::Format::kJsonLines && !path.ends_with(".jsonl"))
      fail(Code::kInvalidArgument, "[train] '{}' names no classes; data.objective class reads JSON lines (.jsonl, or data.format jsonl)", path);
    const FileBytes bytes = read_file(path, kMaxTextBytes).value_or_throw();
    std::string_view text(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
    for (int64_t number = 1; !text.empty(); ++number) {
      if (stop_ != nullptr && stop_->stop_requested()) fail(Code::kCancelled, "[train] stopped while reading '{}'", path);
      const size_t end = std::min(text.find('\n'), text.size());
      std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.empty()) read_line(line, fmt::format("{}:{}", path, number), out);
    }
  }

 private:
  void read_line(std::string_view line, const std::string& place, NamedTexts& out) const {
    const JsonDocument document = JsonDocument::parse(line, place).value_or_throw();
    const JsonObject object = document.root().as_object().value_or_throw();
    const std::string_view text = object.get(config_.data.field).value_or_throw().as_string().value_or_throw();
    out.names.push_back(class_of(object, config_.data.label));
    std::vector<int32_t> ids;
    try {
      ids = tokenizer_.encode(text, {.add = AddSpecial::kAsModel});
    } catch (const Error& error) {
      fail(error.code(), "[train] '{}': {}", place, inner_message(error.what()));
    }
    if (ids.empty()) fail(Code::kInvalidArgument, "[train] '{}': the text has no tokens; take the line out", place);
    ids.resize(std::min(ids.size(), static_cast<size_t>(config_.run.sequence)));
    out.texts.ids.insert(out.texts.ids.end(), ids.begin(), ids.end());
    out.texts.starts.push_back(static_cast<int64_t>(out.texts.ids.size()));
  }

  const TrainConfig& config_;
  const Tokenizer& tokenizer_;
  const StopToken* stop_;
};

NamedTexts read_files(const std::vector<std::string>& files, const TrainConfig& config, const Tokenizer& tokenizer, const StopToken* stop) {
  NamedTexts all;
  for (const std::string& path : files) LineReader(config, tokenizer, stop).read(path, all);
  if (all.names.empty()) fail(Code::kInvalidArgument, "[train] there is no text in {}", fmt::join(files, ", "));
  const int64_t limit = config.model.vocab_size > 0 ? config.model.vocab_size : tokenizer.vocab_size();
  for (const int32_t id : all.texts.ids)
    if (id >= limit) fail(Code::kInvalidArgument, "[train] a text of {} has token {}; the vocabulary has {} ids", fmt::join(files, ", "), id, limit);
  return all;
}

ClassTexts numbered(NamedTexts all, const std::vector<std::string>& names, const std::vector<std::string>& files) {
  std::unordered_map<std::string_view, int32_t> numbers;
  for (const std::string& name : names) numbers.emplace(name, static_cast<int32_t>(numbers.size()));
  for (const std::string& name : all.names) {
    const auto at = numbers.find(name);
    if (at == numbers.end())
      fail(Code::kInvalidArgument, "[train] a text of {} is of the class '{}', which is none of the {} that were trained on", fmt::join(files, ", "), name, names.size());
    all.texts.classes.push_back(at->second);
  }
  return std::move(all.texts);
}

// The first `count` texts of `all`, and the others.
void split(const ClassTexts& all, int64_t count, ClassTexts& first, ClassTexts& others) {
  for (int64_t i = 0; i < all.size(); ++i) {
    ClassTexts& to = i < count ? first : others;
    const auto at = static_cast<size_t>(i);
    to.ids.insert(to.ids.end(), all.ids.begin() + all.starts[at], all.ids.begin() + all.starts[at + 1]);
    to.starts.push_back(static_cast<int64_t>(to.ids.size()));
    to.classes.push_back(all.classes[at]);
  }
}

}  // namespace

uint64_t ClassData::hash() const {
  ContentHash hash(1);
  for (const ClassTexts* texts : {&training, &validation}) {
    hash.add_all(texts->ids.data(), texts->ids.size());
    hash.add_all(texts->starts.data(), texts->starts.size());
    hash.add_all(texts->classes.data(), texts->classes.size());
  }
  for (const std::string& name : names) {
    hash.add(name.size());
    hash.add_all(name.data(), name.size());
  }
  return hash.value();
}

ClassData load_class_data(const TrainConfig& config, const Tokenizer& tokenizer, const StopToken* stop) {
  constexpr size_t kMaxClasses = 100'000;  // what a configuration can name
  NamedTexts all = read_files(config.data.files, config, tokenizer, stop);
  ClassData data;
  data.names = sorted_names(all.names);
  if (data.names.size() < 2 || data.names.size() > kMaxClasses)
    fail(Code::kInvalidArgument, "[train] the texts of {} are of {} classes (data.label is {}); expected 2 to {}", fmt::join(config.data.files, ", "), data.names.size(),
         config.data.label, kMaxClasses);
  ClassTexts texts = numbered(std::move(all), data.names, config.data.files);
  if (!config.data.validation_files.empty()) {
    data.training = std::move(texts);
    data.validation = load_class_texts(config.data.validation_files, config, tokenizer, data.names, stop);
    return data;
  }
  const auto kept = static_cast<int64_t>(static_cast<double>(texts.size()) * (1 - config.data.validation_fraction));
  if (kept < 1) fail(Code::kInvalidArgument, "[train] of {} texts data.validation_fraction leaves none to train on; give more, or a smaller share", texts.size());
  split(texts, kept, data.training, data.validation);
  return data;
}

ClassTexts load_class_texts(const std::vector<std::string>& files, const TrainConfig& config, const Tokenizer& tokenizer, const std::vector<std::string>& names,
                            const StopToken* stop) {
  return numbered(read_files(files, config, tokenizer, stop), names, files);
}

ClassBatches::ClassBatches(ClassTexts texts, int64_t seq, LabelAt label_at, Order order, uint64_t seed)
    : texts_(std::move(texts)), seq_(seq), label_at_(label_at), order_(order), seed_(seed) {}

void ClassBatches::fill(int64_t first, int64_t count, Batch& out) const {
  const auto size = static_cast<size_t>(count * seq_);
  out.batch = count;
  out.seq = seq_;
  out.source_seq = 0;
  out.first_sequence = 0;
  out.tokens.assign(size, 0);
  out.labels.assign(size, nn::kIgnoredLabel);
  out.lengths.assign(static_cast<size_t>(count), 0);
  out.documents.clear();
  out.encoding_positions.clear();
  out.source.clear();
  out.source_lengths.clear();
  const auto texts = static_cast<uint64_t>(texts_.size());
  for (int64_t row = 0; row < count; ++row) {
    const auto number = static_cast<uint64_t>(first + row);
    const size_t at = order_ == Order::kShuffled ? permuted(seed_, number / texts, texts, number % texts) : number % texts;
    const int64_t length = texts_.starts[at + 1] - texts_.starts[at];
    std::copy_n(texts_.ids.begin() + texts_.starts[at], length, out.tokens.begin() + row * seq_);
    out.labels[static_cast<size_t>(row * seq_ + (label_at_ == LabelAt::kFirst ? 0 : length - 1))] = texts_.classes[at];
    out.lengths[static_cast<size_t>(row)] = length;
  }
}

ClassBatches::LabelAt label_place(const TrainConfig& config) {
  return config.model.architecture == TrainConfig::Model::Architecture::kEncoder ? ClassBatches::LabelAt::kFirst : ClassBatches::LabelAt::kLast;
}

}  // namespace regard::train_data
