// The data that terms carry: lists of whole numbers and tables of bits.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/checked.h"
#include "mask/hash.h"
#include "mask/node.h"

namespace regard {

bool is_mask_name(std::string_view name) noexcept {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || digit(c); });
}

// ---- MaskList ----

MaskList::MaskList(Data data) {
  ContentHash hash(1);
  hash.add_all(data.offsets.data(), data.offsets.size());
  hash.add_all(data.values.data(), data.values.size());
  data.hash = hash.value();
  data_ = std::make_shared<const Data>(std::move(data));
}

MaskList::MaskList(std::vector<int64_t> values) {
  const auto size = static_cast<int64_t>(values.size());
  *this = MaskList(Data{std::move(values), {0, size}, 0});
}

MaskList MaskList::per_row(const std::vector<std::vector<int64_t>>& rows) {
  require(!rows.empty(), "[MaskList] a list given per batch row needs at least one row");
  Data data{{}, {0}, 0};
  for (const auto& row : rows) {
    data.values.insert(data.values.end(), row.begin(), row.end());
    data.offsets.push_back(static_cast<int64_t>(data.values.size()));
  }
  return MaskList(std::move(data));
}

MaskList MaskList::per_row(std::vector<int64_t> values, int64_t rows, int64_t columns) {
  require(rows >= 1 && columns >= 0, "[MaskList] shape [{}, {}] given; expected at least one row", rows, columns);
  const auto size = checked_mul(rows, columns);
  require(size && static_cast<int64_t>(values.size()) == *size, "[MaskList] {} numbers given for shape [{}, {}]",
          values.size(), rows, columns);
  Data data{std::move(values), {}, 0};
  for (int64_t r = 0; r <= rows; ++r) data.offsets.push_back(r * columns);
  return MaskList(std::move(data));
}

MaskList MaskList::named(std::string name) const {
  require(is_mask_name(name),
          "[MaskList::named] '{}' is no name; expected a letter or '_' followed by letters, digits and '_'", name);
  MaskList copy = *this;
  copy.name_ = std::move(name);
  return copy;
}

int64_t MaskList::size(int64_t r) const noexcept {
  const auto i = static_cast<size_t>(r);
  return data_->offsets[i + 1] - data_->offsets[i];
}

const int64_t* MaskList::row(int64_t r) const noexcept {
  return data_->values.data() + data_->offsets[static_cast<size_t>(r)];
}

bool operator==(const MaskList& a, const MaskList& b) noexcept {
  return a.data_ == b.data_ ||
         (a.hash() == b.hash() && a.data_->offsets == b.data_->offsets && a.data_->values == b.data_->values);
}

// ---- BitTable ----

namespace {

bool bit_of(bool value) { return value; }
bool bit_of(uint8_t value) {
  require(value <= 1, "[BitTable::from_array] byte {} found; a boolean array holds 0 and 1 only", value);
  return value == 1;
}

}  // namespace

template <class T>
BitTable BitTable::build(Polarity polarity, TensorView<const T> values, const Expected& expected) {
  require(values.rank >= 2,
          "[BitTable::from_array] rank {} given; expected [batch|1, heads|1, q, k], [heads|1, q, k] or [q, k]",
          values.rank);
  // The axes are numbered from the right, so that a missing batch or head axis has extent 1 and stride 0.
  int64_t extent[4] = {1, 1, 1, 1}, stride[4] = {0, 0, 0, 0};
  for (int i = 0; i < values.rank; ++i) {
    const auto from = static_cast<size_t>(i), to = static_cast<size_t>(4 - values.rank + i);
    extent[to] = values.shape[from];
    stride[to] = values.strides[from];
    require(extent[to] >= 0, "[BitTable::from_array] axis {} has extent {}", i, extent[to]);
  }
  const auto fits = [](int64_t wanted, int64_t given, bool may_be_one) {
    return wanted < 0 || given == wanted || (may_be_one && given == 1);
  };
  const auto shown = [](int64_t wanted) { return wanted < 0 ? std::string("any") : std::to_string(wanted); };
  require(fits(expected.batch, extent[0], true) && fits(expected.heads, extent[1], true) &&
              fits(expected.q, extent[2], false) && fits(expected.k, extent[3], false),
          "[BitTable::from_array] shape [{}, {}, {}, {}] given; expected [batch, heads, q, k] = [{}, {}, {}, {}] "
          "(batch and heads may be 1)",
          extent[0], extent[1], extent[2], extent[3], shown(expected.batch), shown(expected.heads), shown(expected.q),
          shown(expected.k));

  auto data = std::make_shared<Data>();
  data->batch = extent[0];
  data->heads = extent[1];
  data->q_len = extent[2];
  data->kv_len = extent[3];
  data->words_per_row = data->kv_len / 64 + (data->kv_len % 64 != 0 ? 1 : 0);
  auto count = checked_mul(extent[0], extent[1]);
  if (count) count = checked_mul(*count, extent[2]);
  if (count) count = checked_mul(*count, data->words_per_row);
  const auto bytes = count ? checked_mul<int64_t>(*count, 8) : count;
  if (!bytes)
    fail(Code::kResourceExhausted, "[BitTable::from_array] shape [{}, {}, {}, {}] has too many bits", extent[0],
         extent[1], extent[2], extent[3]);
  data->words.assign(static_cast<size_t>(*count), 0);

  uint64_t* word = data->words.data();
  for (int64_t b = 0; b < extent[0]; ++b)
    for (int64_t h = 0; h < extent[1]; ++h)
      for (int64_t q = 0; q < extent[2]; ++q, word += data->words_per_row) {
        const T* row = values.data + b * stride[0] + h * stride[1] + q * stride[2];
        for (int64_t k = 0; k < extent[3]; ++k) {
          const bool sees = bit_of(row[k * stride[3]]) == (polarity == Polarity::kKeep);
          word[k / 64] |= uint64_t{sees} << (k % 64);
        }
      }

  ContentHash hash(2);
  hash.add_all(extent, 4);
  hash.add_all(data->words.data(), data->words.size());
  data->hash = hash.value();
  return BitTable(std::move(data));
}

BitTable BitTable::from_array(Polarity polarity, TensorView<const bool> values, Expected expected) {
  return build(polarity, values, expected);
}

BitTable BitTable::from_array(Polarity polarity, TensorView<const uint8_t> values, Expected expected) {
  return build(polarity, values, expected);
}

const uint64_t* BitTable::row(int64_t b, int64_t h, int64_t q) const noexcept {
  const int64_t bi = data_->batch == 1 ? 0 : b, hi = data_->heads == 1 ? 0 : h;
  return data_->words.data() + ((bi * data_->heads + hi) * data_->q_len + q) * data_->words_per_row;
}

bool operator==(const BitTable& a, const BitTable& b) noexcept {
  return a.data_ == b.data_ || (a.hash() == b.hash() && a.batch() == b.batch() && a.heads() == b.heads() &&
                                a.q_len() == b.q_len() && a.kv_len() == b.kv_len() && a.data_->words == b.data_->words);
}

}  // namespace regard
