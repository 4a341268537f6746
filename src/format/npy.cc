// The head of a file is the literal of a Python dictionary with three known keys. It is read by a small scanner for just
// that: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
#include "format/npy.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "base/half.h"
#include "format/byte_reader.h"
#include "format/names.h"
#include "format/tensor_info.h"

namespace regard {
namespace {

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kMaxHeader = 10'000;  // what NumPy itself accepts unless told otherwise
constexpr size_t kMaxExtents = 32;     // NumPy's own

struct DescrType {
  std::string_view descr;
  DType type;
};
constexpr DescrType kTypes[] = {{"<f4", DType::kF32}, {"<f8", DType::kF64}, {"<f2", DType::kF16}, {"|b1", DType::kBool}, {"|u1", DType::kU8},
                                {"|i1", DType::kI8},  {"<i2", DType::kI16}, {"<i4", DType::kI32}, {"<i8", DType::kI64},  {"<u2", DType::kU16},
                                {"<u4", DType::kU32}, {"<u8", DType::kU64}};

struct Header {
  std::optional<std::string> descr;
  std::optional<bool> fortran_order;
  std::optional<std::vector<int64_t>> shape;
};

class HeaderScanner {
 public:
  HeaderScanner(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<Header> scan() {
    Header header;
    REGARD_CHECK(expect('{'));
    while (!accept('}')) {
      REGARD_TRY(const std::string key, string());
      REGARD_CHECK(expect(':'));
      if (key == "descr" && !header.descr) {
        skip_spaces();
        if (at_ < text_.size() && text_[at_] == '[')
          return failure(Code::kUnsupported, "[npy] {}: an array of structures; save one field at a time", name_);
        REGARD_TRY(header.descr, string());
      } else if (key == "fortran_order" && !header.fortran_order) {
        REGARD_TRY(header.fortran_order, boolean());
      } else if (key == "shape" && !header.shape) {
        REGARD_TRY(header.shape, shape());
      } else {
        return refuse(fmt::format("the key \"{}\" is unknown or stands there twice", printable(key)));
      }
      if (!accept(',')) {
        REGARD_CHECK(expect('}'));
        break;
      }
    }
    skip_spaces();
    if (at_ != text_.size()) return refuse("text behind the dictionary");
    if (!header.descr || !header.fortran_order || !header.shape) return refuse("descr, fortran_order or shape is missing");
    return header;
  }

 private:
  Failure refuse(std::string_view why) const { return corrupt("[npy] {}: header, column {}: {}", name_, at_ + 1, why); }

  void skip_spaces() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) ++at_;
  }
  bool accept(char c) {
    skip_spaces();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Result<Done> expect(char c) {
    if (!accept(c)) return refuse(fmt::format("expected '{}'", c));
    return Done{};
  }

  Result<std::string> string() {
    skip_spaces();
    if (at_ == text_.size() || (text_[at_] != '\'' && text_[at_] != '"')) return refuse("expected a quoted word");
    const size_t end = text_.find(text_[at_], at_ + 1);
    if (end == std::string_view::npos) return refuse("the quoted word does not end");
    std::string word(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return word;
  }

  Result<bool> boolean() {
    skip_spaces();
    for (const bool value : {true, false}) {
      const std::string_view word = value ? "True" : "False";
      if (text_.substr(at_, word.size()) != word) continue;
      at_ += word.size();
      return value;
    }
    return refuse("expected True or False");
  }

  Result<std::vector<int64_t>> shape() {
    std::vector<int64_t> extents;
    REGARD_CHECK(expect('('));
    while (!accept(')')) {
      skip_spaces();
      const size_t start = at_;
      int64_t extent = 0;
      for (; at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; ++at_) {
        const auto tenfold = checked_mul<int64_t>(extent, 10);
        const auto next = tenfold ? checked_add<int64_t>(*tenfold, text_[at_] - '0') : tenfold;
        if (!next) return refuse("an extent that does not fit in 63 bits");
        extent = *next;
      }
      if (at_ == start) return refuse("expected a non-negative integer");
      if (extents.size() == kMaxExtents) return refuse(fmt::format("more than {} dimensions", kMaxExtents));
      extents.push_back(extent);
      if (!accept(',')) {
        // (3) is a number in Python, not a tuple of one: only (3,) is.
        if (extents.size() == 1) return refuse("expected ','");
        REGARD_CHECK(expect(')'));
        break;
      }
    }
    return extents;
  }

  std::string_view text_, name_;
  size_t at_ = 0;
};

Result<DType> type_of(const std::string& descr, std::string_view name) {
  for (const DescrType& known : kTypes)
    if (known.descr == descr) return known.type;
  if (descr.size() > 1 && descr[0] == '>')
    return failure(Code::kUnsupported, "[npy] {}: big-endian elements (\"{}\"); save with astype(dtype.newbyteorder('<'))", name, printable(descr));
  if (descr == "|O") return failure(Code::kUnsupported, "[npy] {}: an array of Python objects, which could run code, so it is not read", name);
  return failure(Code::kUnsupported, "[npy] {}: elements of type \"{}\"; floats of 16 to 64 bits, integers and bool are read", name, printable(descr));
}

/// The elements in C order from those in Fortran order, where the first axis is the contiguous one.
std::vector<std::byte> to_c_order(const std::vector<std::byte>& from, const std::vector<int64_t>& shape, size_t element) {
  std::vector<std::byte> to(from.size());
  std::vector<size_t> index(shape.size(), 0), step(shape.size(), 1);
  for (size_t axis = 1; axis < shape.size(); ++axis) step[axis] = step[axis - 1] * static_cast<size_t>(shape[axis - 1]);
  size_t source = 0;
  for (size_t place = 0; place < to.size(); place += element) {
    std::memcpy(&to[place], &from[source * element], element);
    for (size_t axis = shape.size(); axis-- > 0;) {
      source += step[axis];
      if (++index[axis] < static_cast<size_t>(shape[axis])) break;
      source -= step[axis] * index[axis];
      index[axis] = 0;
    }
  }
  return to;
}

}  // namespace

Result<NpyHead> read_npy_head(const ByteSource& source, std::string_view name) {
  ByteReader reader(source);
  std::string magic(std::min<uint64_t>(kMagic.size(), reader.remaining()), '\0');
  REGARD_CHECK(reader.bytes({reinterpret_cast<uint8_t*>(magic.data()), magic.size()}));
  if (magic.substr(0, 4) == std::string_view("PK\x03\x04", 4))
    return failure(Code::kUnsupported, "[npy] {}: a zip archive (.npz); save each array with numpy.save", name);
  if (magic != kMagic) return corrupt("[npy] {}: does not begin as a NumPy array does", name);
  const auto at = [&](const Failure& why) { return Failure{why.code, fmt::format("[npy] {}: {}", name, why.message)}; };
  const auto version = reader.number<uint16_t>();
  if (!version) return at(version.failure());
  const int major = *version & 0xFF, minor = *version >> 8;
  if ((major != 1 && major != 2) || minor != 0)
    return failure(Code::kUnsupported, "[npy] {}: format version {}.{}; 1.0 and 2.0 are read", name, major, minor);
  const auto text = major == 1 ? reader.string<uint16_t>(kMaxHeader) : reader.string<uint32_t>(kMaxHeader);
  if (!text) return at(text.failure());
  REGARD_TRY(const Header header, HeaderScanner(*text, name).scan());

  NpyHead head;
  REGARD_TRY(head.type, type_of(*header.descr, name));
  head.shape = *header.shape;
  head.fortran_order = *header.fortran_order;
  head.data_begin = reader.position();
  const auto values = checked_values(head.shape);
  const auto bytes = values ? checked_mul<int64_t>(*values, info(head.type).bytes) : values;
  if (!bytes || static_cast<uint64_t>(*bytes) != reader.remaining()) {
    return corrupt("[npy] {}: {} elements of type {} do not take the {} bytes that follow the header", name, shape_text(head.shape),
                   info(head.type).name, reader.remaining());
  }
  return head;
}

Result<NpyArray> read_npy(const ByteSource& source, std::string_view name) {
  REGARD_TRY(NpyHead head, read_npy_head(source, name));
  NpyArray array{head.type, std::move(head.shape), {}};
  array.bytes.resize(static_cast<size_t>(source.size() - head.data_begin));
  const auto read = source.read_at(head.data_begin, {reinterpret_cast<uint8_t*>(array.bytes.data()), array.bytes.size()});
  if (!read) return Failure{read.failure().code, fmt::format("[npy] {}: {}", name, read.failure().message)};
  if (array.type == DType::kBool) {
    const auto odd = std::find_if(array.bytes.begin(), array.bytes.end(), [](std::byte b) { return b > std::byte{1}; });
    if (odd != array.bytes.end()) return corrupt("[npy] {}: element {} is a bool that is {}", name, odd - array.bytes.begin(), static_cast<int>(*odd));
  }
  if (head.fortran_order && array.shape.size() > 1)
    array.bytes = to_c_order(array.bytes, array.shape, static_cast<size_t>(info(array.type).bytes));
  return array;
}

std::string npy_header(DType type, std::span<const int64_t> shape) {
  const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const DescrType& t) { return t.type == type; });
  if (known == std::end(kTypes)) fail(Code::kInvalidArgument, "[npy_header] NumPy has no type {}", info(type).name);
  std::string dictionary = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", known->descr, fmt::join(shape, ", "),
                                       shape.size() == 1 ? "," : "");
  constexpr size_t kBefore = 10, kAlignment = 64;  // magic, version, length; then spaces and a line end up to the data
  const size_t whole = ceil_div(kBefore + dictionary.size() + 1, kAlignment) * kAlignment;
  dictionary.append(whole - kBefore - dictionary.size() - 1, ' ');
  dictionary += '\n';
  const size_t length = dictionary.size();
  std::string header(kMagic);
  header += {'\x01', '\0', static_cast<char>(length & 0xFF), static_cast<char>(length >> 8)};
  return header + dictionary;
}

int64_t NpyArray::size() const { return info(type).bytes == 0 ? 0 : static_cast<int64_t>(bytes.size()) / info(type).bytes; }

namespace {

/// Every element as a To, for the types of From that are listed.
template <class From, class To>
void convert(const NpyArray& array, std::vector<To>& to) {
  for (size_t i = 0; i < to.size(); ++i) {
    From value;
    std::memcpy(&value, array.bytes.data() + i * sizeof(From), sizeof(From));
    to[i] = static_cast<To>(value);
  }
}

template <class To>
std::vector<To> to_real(const NpyArray& array, std::string_view function) {
  std::vector<To> to(static_cast<size_t>(array.size()));
  switch (array.type) {
    case DType::kF32: convert<float>(array, to); break;
    case DType::kF64: convert<double>(array, to); break;
    case DType::kF16:
      for (size_t i = 0; i < to.size(); ++i) {
        uint16_t half;
        std::memcpy(&half, array.bytes.data() + 2 * i, 2);
        to[i] = half_to_float(half);
      }
      break;
    default: fail(Code::kInvalidArgument, "[{}] elements of type {}, expected f16, f32 or f64", function, info(array.type).name);
  }
  return to;
}

}  // namespace

std::vector<float> NpyArray::to_f32() const { return to_real<float>(*this, "NpyArray::to_f32"); }
std::vector<double> NpyArray::to_f64() const { return to_real<double>(*this, "NpyArray::to_f64"); }

std::vector<int64_t> NpyArray::to_i64() const {
  std::vector<int64_t> to(static_cast<size_t>(size()));
  switch (type) {
    case DType::kBool: case DType::kU8: convert<uint8_t>(*this, to); break;
    case DType::kI8: convert<int8_t>(*this, to); break;
    case DType::kI16: convert<int16_t>(*this, to); break;
    case DType::kU16: convert<uint16_t>(*this, to); break;
    case DType::kI32: convert<int32_t>(*this, to); break;
    case DType::kU32: convert<uint32_t>(*this, to); break;
    case DType::kI64: convert<int64_t>(*this, to); break;
    case DType::kU64:
      convert<uint64_t>(*this, to);
      for (size_t i = 0; i < to.size(); ++i)
        if (to[i] < 0) fail(Code::kInvalidArgument, "[NpyArray::to_i64] element {} is beyond 2^63 - 1", i);
      break;
    default: fail(Code::kInvalidArgument, "[NpyArray::to_i64] elements of type {}, expected integers", info(type).name);
  }
  return to;
}

std::vector<uint8_t> NpyArray::to_bool() const {
  if (type != DType::kBool && type != DType::kU8)
    fail(Code::kInvalidArgument, "[NpyArray::to_bool] elements of type {}, expected bool, or u8 of 0 and 1", info(type).name);
  std::vector<uint8_t> to(bytes.size());
  convert<uint8_t>(*this, to);
  for (size_t i = 0; i < to.size(); ++i)
    if (to[i] > 1) fail(Code::kInvalidArgument, "[NpyArray::to_bool] element {} is {}, expected 0 or 1", i, to[i]);
  return to;
}

}  // namespace regard
