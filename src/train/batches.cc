#include "train/batches.h"

#include <algorithm>

#include "base/check.h"
#include "train/permutation.h"
#include "train/streams.h"

namespace regard::train_data {
namespace {

using Documents = TrainConfig::Data::Documents;
using Objective = TrainConfig::Data::Objective;

template <class T>
std::span<const T> rows(const std::vector<T>& all, int64_t first, int64_t count, int64_t width) {
  if (all.empty()) return {};
  return std::span<const T>(all).subspan(static_cast<size_t>(first * width), static_cast<size_t>(count * width));
}

template <class T>
std::span<T> row_of(std::vector<T>& all, int64_t row, int64_t width) {
  return std::span<T>(all).subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
}

}  // namespace

nn::TokenBatch Batch::view(int64_t first, int64_t count) const {
  nn::TokenBatch part;
  part.batch = count;
  part.seq = seq;
  part.tokens = rows(tokens, first, count, seq);
  part.labels = rows(labels, first, count, seq);
  part.lengths = rows(lengths, first, count, 1);
  part.documents = rows(documents, first, count, seq);
  part.encoding_positions = rows(encoding_positions, first, count, seq);
  part.source_seq = source_seq;
  part.source = rows(source, first, count, source_seq);
  part.source_lengths = rows(source_lengths, first, count, 1);
  part.first_sequence = first_sequence + first;
  return part;
}

int64_t Batch::counted() const {
  return static_cast<int64_t>(labels.size()) - std::count(labels.begin(), labels.end(), nn::kIgnoredLabel);
}

void shift_labels(std::span<const int32_t> tokens, std::span<const int32_t> documents, std::span<int32_t> labels) {
  require(tokens.size() == labels.size() + 1, "[shift_labels] {} labels for {} tokens", labels.size(), tokens.size());
  for (size_t t = 0; t < labels.size(); ++t) {
    labels[t] = documents.empty() || documents[t] == documents[t + 1] ? tokens[t + 1] : nn::kIgnoredLabel;
  }
}

void corrupt_tokens(const Corruption& corruption, int64_t sequence, std::span<int32_t> tokens, std::span<int32_t> labels) {
  const uint64_t base = static_cast<uint64_t>(sequence) * tokens.size();
  for (size_t t = 0; t < tokens.size(); ++t) {
    if (random_uniform(corruption.seed, kStreamCorruption, base + t) >= corruption.rate) {
      labels[t] = nn::kIgnoredLabel;
      continue;
    }
    labels[t] = tokens[t];
    const uint64_t bits = random_bits(corruption.seed, kStreamReplacement, base + t);
    const uint64_t tenth = (bits >> 32) * 10 >> 32;
    if (tenth < 8) tokens[t] = corruption.mask_id;
    else if (tenth == 8) tokens[t] = static_cast<int32_t>((bits & 0xFFFFFFFFu) * static_cast<uint64_t>(corruption.vocab_size) >> 32);
  }
}

WindowBatches::WindowBatches(TokenData data, const WindowOptions& options) : data_(std::move(data)), options_(options) {
  const bool shifted = options.objective == Objective::kNextToken;
  usable_ = data_.size() - (shifted ? 1 : 0);
  const bool shuffled = options.order == WindowOptions::Order::kShuffled;
  const int64_t least = shuffled ? options.seq : 1;
  if (usable_ < least) {
    fail(Code::kInvalidArgument, "[train] there are {} tokens; expected at least {}, {}: give more text or a smaller run.sequence", data_.size(),
         least + (shifted ? 1 : 0), shuffled ? "one sequence" : "for the validation split");
  }
  windows_ = shuffled ? usable_ / options.seq : (usable_ + options.seq - 1) / options.seq;
  // One window less leaves room to begin each epoch elsewhere, so that not every epoch cuts the text at the same places.
  if (shuffled && windows_ > 1) --windows_;
}

int64_t WindowBatches::begin_of(int64_t number) const {
  if (options_.order == WindowOptions::Order::kInOrder) return number % windows_ * options_.seq;
  const auto count = static_cast<uint64_t>(windows_);
  const auto epoch = static_cast<uint64_t>(number) / count;
  const auto window = permuted(options_.seed, epoch, count, static_cast<uint64_t>(number) % count);
  const int64_t room = std::min(usable_ - windows_ * options_.seq + 1, options_.seq);
  const double where = random_uniform(options_.seed, kStreamOffset + epoch * kStreamsPerEpoch, 0);
  return static_cast<int64_t>(window) * options_.seq + static_cast<int64_t>(where * static_cast<double>(room));
}

void WindowBatches::fill(int64_t first, int64_t count, Batch& out) const {
  const auto size = static_cast<size_t>(count * options_.seq);
  out.batch = count;
  out.seq = options_.seq;
  out.tokens.assign(size, 0);
  out.labels.assign(size, nn::kIgnoredLabel);
  out.lengths.assign(static_cast<size_t>(count), options_.seq);
  out.documents.assign(options_.documents == Documents::kNone ? 0 : size, 0);
  out.encoding_positions.assign(options_.documents == Documents::kMaskAndRestart ? size : 0, 0);
  out.first_sequence = 0;
  for (int64_t row = 0; row < count; ++row) fill_one(first + row, row, out);
}

void WindowBatches::fill_one(int64_t number, int64_t row, Batch& out) const {
  const bool shifted = options_.objective == Objective::kNextToken;
  const int64_t begin = begin_of(number), length = std::min(options_.seq, usable_ - begin);
  const auto n = static_cast<size_t>(length);
  const auto tokens = row_of(out.tokens, row, options_.seq).first(n);
  const auto labels = row_of(out.labels, row, options_.seq).first(n);
  out.lengths[static_cast<size_t>(row)] = length;

  // The token behind the window is a label only, so tokens and documents are made one longer here.
  std::vector<int32_t> ids(n + (shifted ? 1 : 0)), documents(out.documents.empty() ? 0 : ids.size());
  data_.copy(begin, ids);
  if (!documents.empty()) {
    TokenData::Document document = data_.document(begin);
    int64_t start = begin;  // of the document inside the window
    int32_t local = 0;
    for (int64_t t = 0; t < static_cast<int64_t>(ids.size()); ++t) {
      if (begin + t >= document.end) document = data_.document(begin + t), start = begin + t, ++local;
      documents[static_cast<size_t>(t)] = local;
      if (t < length && !out.encoding_positions.empty()) {
        out.encoding_positions[static_cast<size_t>(row * options_.seq + t)] = static_cast<int32_t>(begin + t - start);
      }
    }
    std::copy_n(documents.begin(), n, row_of(out.documents, row, options_.seq).begin());
    // Padding is a document of its own; nobody looks at it.
    for (int64_t t = length; t < options_.seq; ++t) out.documents[static_cast<size_t>(row * options_.seq + t)] = local + 1;
  }
  std::copy_n(ids.begin(), n, tokens.begin());
  if (shifted) shift_labels(ids, documents, labels);
  else corrupt_tokens(options_.corruption, number, tokens, labels);
}

}  // namespace regard::train_data
