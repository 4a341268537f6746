#include "mask_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "regard/npy.h"

namespace regard::cli {
namespace {

// A list as the text form of a mask writes it: numbers, or a bound name; '/' between the lists of batch rows.
MaskList parse_list(const std::string& text, const Bindings& bindings, std::string_view what) {
  const std::vector<std::string> words = split(text, ' ');
  if (words.size() == 1) {
    const auto bound = bindings.lists.find(words[0]);
    if (bound != bindings.lists.end()) return bound->second;
  }
  std::vector<std::vector<int64_t>> rows;
  for (const std::string& row : split(text, '/')) rows.push_back(parse_integers(row, what));
  if (rows.empty()) throw UsageError(fmt::format("{} is empty", what));
  return rows.size() == 1 ? MaskList(rows[0]) : MaskList::per_row(rows);
}

bool is_table(const NpyArray& array) {
  return array.type == DType::kBool || (array.type == DType::kU8 && array.shape.size() >= 2);
}

BitTable to_table(const NpyArray& array, const std::string& path) {
  const std::vector<uint8_t> bits = array.to_bool();
  const std::vector<int64_t>& s = array.shape;
  TensorView<const uint8_t> view;
  if (s.size() == 2) view = TensorView<const uint8_t>(bits.data(), {s[0], s[1]});
  else if (s.size() == 3) view = TensorView<const uint8_t>(bits.data(), {s[0], s[1], s[2]});
  else if (s.size() == 4) view = TensorView<const uint8_t>(bits.data(), {s[0], s[1], s[2], s[3]});
  else throw UsageError(fmt::format("{} has {} axes; a table has 2, 3 or 4: [batch, heads, query, key]", path, s.size()));
  return BitTable::from_array(Polarity::kKeep, view);
}

}  // namespace

std::vector<Option> mask_limit_options() {
  return {
      {.name = "bind", .type = Type::kText, .value = "NAME=FILE",
       .help = "A .npy array that NAME in the mask stands for: int64 [n] or [batch, n] is a list; bool or uint8 [q, k], [heads, q, k] or "
               "[batch, heads, q, k] is a table, true means may look.",
       .repeat = Repeat::kMany, .section = Section::kCommon},
      {.name = "lengths", .type = Type::kText, .value = "LIST",
       .help = "Sequence lengths, one for all batch rows or one for each: a key is seen only below its row's length."},
      {.name = "documents", .type = Type::kText, .value = "LIST",
       .help = "Document of each position, such as '0,0,1,1': a query sees keys of its own document only. '/' separates batch rows, ';' "
               "separates queries from keys; a bound name will do."},
  };
}

Option batch_row_option() {
  return {.name = "batch-row", .type = Type::kInteger, .value = "B", .help = "Which batch row.", .fallback = "0", .min = 0, .max = 1e6};
}
Option head_option() {
  return {.name = "head", .type = Type::kInteger, .value = "H", .help = "Which query head.", .fallback = "0", .min = 0, .max = 65535};
}

std::string where_queries_stand(int64_t q_len, int64_t kv_len) {
  const std::string last = kv_len > q_len ? fmt::format(", {} when they are the last", kv_len - q_len) : "";
  return fmt::format("{} queries and {} keys, and it matters where the queries stand among the keys; give --q-begin: 0 when they are the first{}",
                     q_len, kv_len, last);
}

int64_t read_position(const Arguments& arguments, std::string_view name) {
  const int64_t position = parse_integer(arguments.positional(name), name);
  if (position < 0) throw UsageError(fmt::format("{} is {}; give 0 or more", name, position));
  return position;
}

std::vector<int64_t> parse_integers(std::string_view text, std::string_view what) {
  std::string spaced(text);
  if (spaced.find(',') != std::string::npos) {
    bool number = false;  // since the last comma
    for (const char c : spaced + ",") {
      if (c == ',' && !std::exchange(number, false)) throw UsageError(fmt::format("{} is '{}'; a number is missing at a comma", what, text));
      number = number || (c != ',' && c != ' ' && c != '\n' && c != '\t' && c != '\r');
    }
  }
  std::replace_if(spaced.begin(), spaced.end(), [](char c) { return c == ',' || c == '\n' || c == '\t' || c == '\r'; }, ' ');
  std::vector<int64_t> values;
  for (const std::string& word : split(spaced, ' ')) values.push_back(parse_integer(word, what));
  return values;
}

Bindings read_bindings(const Arguments& arguments) {
  Bindings bindings;
  for (const std::string& text : arguments.list("bind")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
      throw UsageError(fmt::format("--bind is '{}'; give NAME=FILE", text));
    }
    const std::string name = text.substr(0, equals), path = text.substr(equals + 1);
    if (bindings.lists.contains(name) || bindings.tables.contains(name)) throw UsageError(fmt::format("--bind gives {} twice", name));
    const NpyArray array = load_npy(path);
    if (is_table(array)) {
      bindings.tables.emplace(name, to_table(array, path));
    } else if (array.shape.size() == 1) {
      bindings.lists.emplace(name, MaskList(array.to_i64()).named(name));
    } else if (array.shape.size() == 2) {
      bindings.lists.emplace(name, MaskList::per_row(array.to_i64(), array.shape[0], array.shape[1]).named(name));
    } else {
      throw UsageError(fmt::format("{} has {} axes; a list has one, or two with a list per batch row", path, array.shape.size()));
    }
  }
  return bindings;
}

MaskLimits read_limits(const Arguments& arguments, const Bindings& bindings) {
  MaskLimits limits;
  if (arguments.has("lengths")) {
    const std::string& text = arguments.text("lengths");
    const auto bound = bindings.lists.find(text);
    if (bound == bindings.lists.end()) {
      limits.key_lengths = parse_integers(text, "--lengths");
    } else {
      limits.key_lengths.assign(bound->second.row(), bound->second.row() + bound->second.size());
    }
  }
  if (arguments.has("documents")) {
    const std::vector<std::string> parts = split(arguments.text("documents"), ';');
    if (parts.empty() || parts.size() > 2) throw UsageError("--documents takes one list, or one for queries and one for keys");
    const MaskList q_ids = parse_list(parts.front(), bindings, "--documents");
    limits.documents = DocumentLimit{q_ids, parts.size() == 2 ? parse_list(parts.back(), bindings, "--documents") : q_ids};
  }
  return limits;
}

BitTable load_table(const std::string& path) { return to_table(load_npy(path), path); }

}  // namespace regard::cli
