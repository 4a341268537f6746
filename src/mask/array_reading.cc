#include "mask/array_reading.h"

#include <fmt/format.h>

#include <cmath>

#include "base/check.h"
#include "base/checked.h"
#include "base/half.h"

namespace regard {
namespace {

constexpr double kLargeNegative = -1000;  // a score this far down has weight 0 in f32, unless all scores of the row are

/// What the elements are, counted, and where each kind comes up first.
struct Kinds {
  struct Kind {
    int64_t count = 0, first = -1;
    double value = 0;
    void add(int64_t i, double x) {
      if (count++ == 0) first = i, value = x;
    }
  };
  Kind zero, one, minus_infinity, large_negative, broken, other;
};

template <class T>
Kinds count_kinds(const MaskArray& array, std::vector<uint8_t>& visible, const StopToken* stop) {
  const T* values = static_cast<const T*>(array.data);
  Kinds kinds;
  for (size_t i = 0; i < visible.size(); ++i) {
    if (i % 65536 == 0 && stop != nullptr && stop->stop_requested())
      fail(Code::kCancelled, "[check_mask_array] stopped on request");
    double x;
    if constexpr (std::is_same_v<T, uint16_t>) {
      x = array.type == DType::kF16 ? static_cast<double>(half_to_float(values[i])) : values[i];
    } else {
      x = static_cast<double>(values[i]);
    }
    const auto at = static_cast<int64_t>(i);
    if (x == 0)
      kinds.zero.add(at, x);
    else if (x == 1)
      kinds.one.add(at, x);
    else if (std::isnan(x) || x == INFINITY)
      kinds.broken.add(at, x);
    else if (std::isinf(x))
      kinds.minus_infinity.add(at, x);
    else if (x <= kLargeNegative)
      kinds.large_negative.add(at, x);
    else
      kinds.other.add(at, x);
    visible[i] = !(x <= kLargeNegative) && !std::isnan(x);
  }
  return kinds;
}

Kinds count_all(const MaskArray& array, std::vector<uint8_t>& visible, const StopToken* stop) {
  switch (array.type) {
    case DType::kBool:
    case DType::kU8:
      return count_kinds<uint8_t>(array, visible, stop);
    case DType::kI8:
      return count_kinds<int8_t>(array, visible, stop);
    case DType::kI16:
      return count_kinds<int16_t>(array, visible, stop);
    case DType::kI32:
      return count_kinds<int32_t>(array, visible, stop);
    case DType::kI64:
      return count_kinds<int64_t>(array, visible, stop);
    case DType::kU16:
    case DType::kF16:
      return count_kinds<uint16_t>(array, visible, stop);
    case DType::kU32:
      return count_kinds<uint32_t>(array, visible, stop);
    case DType::kU64:
      return count_kinds<uint64_t>(array, visible, stop);
    case DType::kF32:
      return count_kinds<float>(array, visible, stop);
    case DType::kF64:
      return count_kinds<double>(array, visible, stop);
    default:
      fail(Code::kInvalidArgument, "[check_mask_array] elements of the type {} are no mask", info(array.type).name);
  }
}

}  // namespace

std::vector<int64_t> four_axes(const std::vector<int64_t>& shape) {
  require(shape.size() >= 2 && shape.size() <= 4,
          "[check_mask_array] {} axes given; a mask has 2 to 4: [q, k], [heads, q, k] or [batch, heads, q, k]",
          shape.size());
  std::vector<int64_t> four(4 - shape.size(), 1);
  four.insert(four.end(), shape.begin(), shape.end());
  return four;
}

ArrayReading read_elements(const MaskArray& array, const std::vector<int64_t>& shape, const StopToken* stop) {
  std::optional<int64_t> size = 1;
  for (int64_t extent : shape) {
    require(extent >= 0, "[check_mask_array] an axis of {} elements given", extent);
    if (size) size = checked_mul(*size, extent);
  }
  if (!size) fail(Code::kResourceExhausted, "[check_mask_array] the shape has too many elements");
  ArrayReading reading;
  reading.type = info(array.type).name;
  reading.visible.resize(static_cast<size_t>(*size));
  const Kinds kinds = count_all(array, reading.visible, stop);
  const auto fault = [&](const char* name, int64_t first, std::string says) {
    MaskFault f{name, std::move(says), {}, {}, {}, {}};
    if (first >= 0) {
      f.k = first % shape[3];
      f.q = first / shape[3] % shape[2];
      f.head = first / shape[3] / shape[2] % shape[1];
      f.batch = first / shape[3] / shape[2] / shape[1];
    }
    reading.faults.push_back(std::move(f));
  };
  const auto take_as_truth = [&] {
    reading.truth_values = true;
    // What is 0 is false; count_kinds() took it for a number that is added.
    const auto bit = [&](auto* values) {
      for (size_t i = 0; i < reading.visible.size(); ++i) reading.visible[i] = values[i] != 0;
    };
    switch (info(array.type).bytes) {
      case 1:
        return bit(static_cast<const uint8_t*>(array.data));
      case 2:
        return bit(static_cast<const uint16_t*>(array.data));
      case 4:
        return array.type == DType::kF32 ? bit(static_cast<const float*>(array.data))
                                         : bit(static_cast<const uint32_t*>(array.data));
      default:
        return array.type == DType::kF64 ? bit(static_cast<const double*>(array.data))
                                         : bit(static_cast<const uint64_t*>(array.data));
    }
  };
  const bool zero_and_one = kinds.zero.count + kinds.one.count == *size;
  const bool floats = array.type == DType::kF16 || array.type == DType::kF32 || array.type == DType::kF64;
  if (array.type == DType::kBool || (array.type == DType::kU8 && zero_and_one)) {
    take_as_truth();
    return reading;
  }
  if (!floats)
    fault("integer-type", -1,
          fmt::format("the elements are {}: one library reads them as truth values, the next one adds them to the "
                      "scores; give bool",
                      reading.type));
  if (zero_and_one && kinds.one.count > 0) {
    if (floats)
      fault("zero-and-one", kinds.zero.first,
            "floats 0 and 1 are meant as truth values, but a float mask is added to the scores, and adding 0 or 1 "
            "hides nothing; give bool, or 0 and -inf");
    take_as_truth();
    return reading;
  }
  if (kinds.broken.count > 0)
    fault("not-a-number", kinds.broken.first,
          fmt::format("{} elements are NaN or +inf, the first is {:.6g}", kinds.broken.count, kinds.broken.value));
  if (floats && kinds.zero.count == *size && *size > 0)
    fault("hides-nothing", -1, "every element is 0, and adding 0 hides nothing; a hidden pair is -inf");
  if (kinds.large_negative.count > 0) {
    const bool half = array.type == DType::kF16;
    fault(half ? "half-minimum" : "finite-minimum", kinds.large_negative.first,
          fmt::format("{} elements are large negative numbers, the first is {:.6g}; {}; give -inf",
                      kinds.large_negative.count, kinds.large_negative.value,
                      half ? "in f16 two of them, or one and a low score, make -inf, and a row of them is an average "
                             "of what it must not see"
                           : "a row of them is an average of what it must not see, and in f16 the number may be -inf"));
  }
  if (kinds.other.count + (zero_and_one ? 0 : kinds.one.count) > 0) {
    const Kinds::Kind& first = kinds.other.count > 0 ? kinds.other : kinds.one;
    fault("bias", first.first,
          fmt::format("numbers such as {:.6g} change scores: that is a bias, not a mask; they count as visible here",
                      first.value));
  }
  return reading;
}

std::optional<MaskFault> shape_fault(const MaskArray& array, const std::vector<int64_t>& shape,
                                     const MaskCheck& check) {
  const auto fits = [](const std::optional<int64_t>& wanted, int64_t given) {
    return !wanted || given == *wanted || given == 1;
  };
  const bool q = fits(check.q_len, shape[2]), k = fits(check.kv_len, shape[3]), h = fits(check.num_q_heads, shape[1]),
             b = fits(check.batch, shape[0]);
  if (q && k && h && b) return std::nullopt;
  const auto number = [](const std::optional<int64_t>& n) { return n ? std::to_string(*n) : std::string("any"); };
  const std::string said = fmt::format(
      "the shape is [{}]; expected [batch, heads, q, k] = [{}, {}, {}, {}], where an axis may be left away in front or "
      "be 1",
      fmt::join(array.shape, ", "), number(check.batch), number(check.num_q_heads), number(check.q_len),
      number(check.kv_len));
  MaskFault fault{"shape", said, {}, {}, {}, {}};
  if (array.shape.size() == 2 && check.batch && array.shape[0] == *check.batch && k) {
    fault.name = "padding-shape";
    fault.says += "; [batch, k] has to become [batch, 1, 1, k]";
  } else if (array.shape.size() == 3 && check.batch && array.shape[0] == *check.batch && q && k) {
    fault.name = "batch-axis";
    fault.says += "; of three axes the first one is the heads, so [batch, q, k] has to become [batch, 1, q, k]";
  } else if ((!q || !k) && h && b && fits(check.q_len, shape[3]) && fits(check.kv_len, shape[2])) {
    fault.name = "swapped-axes";
    fault.says += "; queries and keys are swapped";
  } else if (q && k && fits(check.batch, shape[1]) && fits(check.num_q_heads, shape[0])) {
    fault.name = "swapped-axes";
    fault.says += "; batch and heads are swapped";
  }
  return fault;
}

}  // namespace regard
