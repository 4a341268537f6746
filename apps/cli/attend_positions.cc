#include "attend_positions.h"

#include <fmt/format.h>

#include <algorithm>

#include "mask_options.h"
#include "regard/npy.h"
#include "regard/position.h"

namespace regard::cli {

TensorView<const int64_t> Slots::view() const {
  if (shape.empty()) return {};
  if (shape.size() == 1) return {values.data(), {shape[0]}};
  return {values.data(), {shape[0], shape[1]}};
}

int64_t Positions::batch(const Tensor& tensor) const { return offsets.empty() ? tensor.batch() : static_cast<int64_t>(offsets.size()) - 1; }

int64_t Positions::longest(const Tensor& tensor) const {
  if (offsets.empty()) return tensor.length();
  int64_t longest = 0;
  for (size_t s = 1; s < offsets.size(); ++s) longest = std::max(longest, offsets[s] - offsets[s - 1]);
  return longest;
}

int64_t Positions::of(int64_t entry, int64_t slot, int64_t length) const {
  int64_t row = entry, first = 0;
  if (!offsets.empty()) {
    if (slot >= offsets.back()) return -1;
    row = std::upper_bound(offsets.begin(), offsets.end(), slot) - offsets.begin() - 1;
    first = offsets[static_cast<size_t>(row)];
  }
  if (!slots.shape.empty()) return slots.of(entry, slot, length);
  return (begin.empty() ? 0 : begin[begin.size() == 1 ? 0 : static_cast<size_t>(row)]) + slot - first;
}

int64_t Positions::encoding_of(int64_t entry, int64_t slot, int64_t length) const {
  const int64_t position = of(entry, slot, length);
  return encoding.shape.empty() || position < 0 ? position : encoding.of(entry, slot, length);
}

namespace {

// An option's file with a number for every slot.
Slots read_slots(const Arguments& arguments, const std::string& option, const Tensor& tensor) {
  if (!arguments.has(option)) return {};
  const NpyArray array = load_npy(arguments.text(option));
  const std::vector<int64_t>& s = array.shape;
  const bool fits = (s.size() == 1 && s[0] == tensor.length()) ||
                    (s.size() == 2 && (s[0] == 1 || s[0] == tensor.batch()) && s[1] == tensor.length());
  if (!fits) {
    throw UsageError(fmt::format("--{} has the shape {}; give [{}] or [{}, {}]", option, shape_text(s), tensor.length(), tensor.batch(),
                                 tensor.length()));
  }
  if (is_float(array.type)) throw UsageError(fmt::format("--{} {} holds {}; give whole numbers", option, arguments.text(option), info(array.type).name));
  return {array.to_i64(), s};
}

// "0,3,5" or a .npy file; checked against the slots that there are.
std::vector<int64_t> read_offsets(const Arguments& arguments, const std::string& option, const Tensor& tensor) {
  const std::string& text = arguments.text(option);
  std::vector<int64_t> offsets;
  if (text.ends_with(".npy")) {
    const NpyArray array = load_npy(text);
    if (array.shape.size() != 1 || is_float(array.type)) throw UsageError(fmt::format("--{} {} is no list of whole numbers", option, text));
    offsets = array.to_i64();
  } else {
    offsets = parse_integers(text, "--" + option);
  }
  const bool rising = std::is_sorted(offsets.begin(), offsets.end());
  if (offsets.size() < 2 || offsets[0] != 0 || !rising || offsets.back() > tensor.length()) {
    throw UsageError(fmt::format("--{} is {}; give numbers that rise from 0 to at most {}, the slots that there are", option, shape_text(offsets),
                                 tensor.length()));
  }
  if (tensor.batch() != 1) throw UsageError(fmt::format("--{} needs arrays with one batch row; these have {}", option, tensor.batch()));
  return offsets;
}

// Turns every vector of `tensor` by its position; slots that were never written stay.
void apply_rope(const Rope& rope, const Positions& positions, Turn turn, Tensor& tensor) {
  const auto half = static_cast<size_t>(rope.half());
  const bool interleaved = rope.config().order == RopeOrder::kInterleaved;
  std::vector<float> cos(half), sin(half);
  for (int64_t b = 0; b < tensor.batch(); ++b) {
    for (int64_t i = 0; i < tensor.length(); ++i) {
      const int64_t position = positions.encoding_of(b, i, tensor.length());
      if (position < 0) continue;
      rope.angles(position, cos.data(), sin.data());
      if (turn == Turn::kBack) {
        for (float& x : sin) x = -x;
      }
      for (int64_t h = 0; h < tensor.heads(); ++h) {
        float* x = tensor.view().at(b, h, i);
        for (size_t j = 0; j < half; ++j) {
          float& a = x[interleaved ? 2 * j : j];
          float& c = x[interleaved ? 2 * j + 1 : j + half];
          const float turned_a = a * cos[j] - c * sin[j], turned_c = a * sin[j] + c * cos[j];
          a = turned_a;
          c = turned_c;
        }
      }
    }
  }
}

}  // namespace

Positions read_positions(const Arguments& arguments, char side, const Tensor& tensor) {
  const std::string begin = fmt::format("{}-begin", side), slots = fmt::format("{}-positions", side);
  Positions positions;
  if (arguments.has("offsets")) {
    positions.offsets = read_offsets(arguments, side == 'k' && arguments.has("k-offsets") ? "k-offsets" : "offsets", tensor);
  } else if (arguments.has("k-offsets")) {
    throw UsageError("--k-offsets needs --offsets");
  }
  if (arguments.has(begin)) {
    positions.begin = parse_integers(arguments.text(begin), "--" + begin);
    const int64_t batch = positions.batch(tensor);
    if (positions.begin.size() != 1 && static_cast<int64_t>(positions.begin.size()) != batch) {
      throw UsageError(fmt::format("--{} has {} numbers; give one, or one for each of the {} {}", begin, positions.begin.size(), batch,
                                   positions.offsets.empty() ? "batch rows" : "sequences"));
    }
  }
  positions.slots = read_slots(arguments, slots, tensor);
  positions.encoding = read_slots(arguments, fmt::format("{}-encoding-positions", side), tensor);
  if (!positions.slots.shape.empty() && arguments.has(begin)) {
    throw UsageError(fmt::format("--{} and --{} say the same thing; give one of them", begin, slots));
  }
  return positions;
}

void turn_by_rope(const Arguments& arguments, const Positions& q_positions, const Positions& k_positions, int64_t dim, Turn turn, Tensor& q,
                  Tensor& k) {
  if (!arguments.has("rope")) {
    if (arguments.source("rope-dim") == Source::kCommandLine || arguments.source("rope-theta") == Source::kCommandLine) {
      throw UsageError("--rope-dim and --rope-theta need --rope half or --rope interleaved");
    }
    return;
  }
  RopeConfig config;
  config.order = arguments.text("rope") == "interleaved" ? RopeOrder::kInterleaved : RopeOrder::kHalfSplit;
  config.rotary_dim = arguments.has("rope-dim") ? arguments.integer("rope-dim") : dim;
  config.theta = arguments.number("rope-theta");
  if (config.rotary_dim > dim) {
    throw UsageError(fmt::format("--rope-dim is {}; the heads have {} elements", config.rotary_dim, dim));
  }
  const Rope rope(config);
  if (!q.shape.empty()) apply_rope(rope, q_positions, turn, q);
  if (!k.shape.empty()) apply_rope(rope, k_positions, turn, k);
}

std::vector<Option> position_options() {
  return {
      {.name = "q-begin", .type = Type::kText, .value = "P",
       .help = "Position of the first query: a number, or one per batch row ('3,5'). Needed when queries and keys differ in number "
               "and the mask compares positions."},
      {.name = "k-begin", .type = Type::kText, .value = "P", .help = "Position of the first key, likewise."},
      {.name = "q-positions", .type = Type::kInputFile, .value = "FILE",
       .help = "Position of each query: int64 [q_len] or [batch, q_len]; -1 is a slot that was never written."},
      {.name = "k-positions", .type = Type::kInputFile, .value = "FILE",
       .help = "Position of each key: int64 [kv_len] or [batch, kv_len]; -1 is a slot that was never written."},
      {.name = "q-encoding-positions", .type = Type::kInputFile, .value = "FILE",
       .help = "Positions of the queries for --rope, --alibi and --t5-table, where the mask takes others; shapes as --q-positions."},
      {.name = "k-encoding-positions", .type = Type::kInputFile, .value = "FILE", .help = "Positions of the keys, likewise."},
      {.name = "rope", .type = Type::kChoice, .value = "ORDER",
       .help = "Turns queries and keys by their positions first; the order says which elements are a pair: i and i + half, or 2i "
               "and 2i + 1.",
       .choices = "half|interleaved"},
      {.name = "rope-dim", .type = Type::kInteger, .value = "N", .help = "Elements of each head that are turned; without it, all.",
       .min = 2, .max = 65536},
      {.name = "rope-theta", .type = Type::kNumber, .value = "X", .help = "Base of the frequencies.", .fallback = "10000",
       .min = 1e-6, .max = 1e30},
      {.name = "offsets", .type = Type::kText, .value = "LIST",
       .help = "Packed sequences: where each begins and where the last one ends, '0,3,5' or a .npy file, in arrays of one batch row. Each is "
               "a batch row for masks, --lengths, --q-begin and --bias; queries behind the last one see nothing."},
      {.name = "k-offsets", .type = Type::kText, .value = "LIST", .help = "The same for keys, where they are others."},
  };
}

}  // namespace regard::cli
