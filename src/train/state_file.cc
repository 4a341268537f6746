#include "train/state_file.h"

#include <array>
#include <bit>
#include <charconv>
#include <cstring>

#include "base/checked.h"
#include "format/byte_reader.h"
#include "format/json_reader.h"
#include "regard/json.h"

namespace regard::train_loop {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written by copying their bytes");

// magic, length of the head, checksum of the head; then the head, padded so that the spans begin at a multiple of 64
constexpr std::array<char, 8> kMagic = {'R', 'e', 'g', 'a', 'r', 'd', 'T', '1'};
constexpr uint64_t kMaxHead = uint64_t{4} << 20;
constexpr size_t kAlignment = 64;
constexpr size_t kFixed = kMagic.size() + 2 * sizeof(uint64_t);
constexpr size_t kMaxSpans = 8;
constexpr int64_t kMaxCount = int64_t{1} << 53;  // whole numbers that every reader of JSON takes

std::span<const std::byte> bytes_of(std::span<const float> span) { return std::as_bytes(span); }

// 64 bits do not fit the numbers of other JSON readers, so hashes are texts.
std::string hex(uint64_t value) { return fmt::format("{:016x}", value); }

Result<uint64_t> read_hex(const JsonObject& object, std::string_view key) {
  REGARD_TRY(const JsonValue value, object.get(key));
  REGARD_TRY(const std::string_view text, value.as_string());
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 16);
  if (text.size() != 16 || error != std::errc() || end != text.data() + text.size()) return value.refuse("expected 16 hexadecimal digits");
  return number;
}

void write_loss(JsonWriter& json, std::string_view key, const std::optional<double>& loss) {
  json.key(key);
  if (loss) json.value(*loss);
  else json.null();
}

void write_list(JsonWriter& json, std::string_view key, const std::vector<double>& list) {
  json.key(key).begin_array();
  for (const double value : list) json.value(value);
  json.end();
}

Result<std::vector<double>> read_list(const JsonObject& object, std::string_view key) {
  REGARD_TRY(const JsonValue value, object.get(key));
  REGARD_TRY(const JsonArray array, value.as_array());
  std::vector<double> list;
  for (const JsonValue element : array) {
    REGARD_TRY(const double number, element.as_number());
    list.push_back(number);
  }
  return list;
}

std::string head_text(const RunState& state, const RunIdentity& identity, const Spans& spans) {
  JsonWriter json;
  json.begin_object().member("step", state.step).member("updates", state.updates).member("tokens", state.tokens);
  json.member("evaluated_step", state.evaluated_step);
  write_loss(json, "validation_loss", state.validation_loss);
  write_loss(json, "best_loss", state.best_loss);
  json.member("best_step", state.best_step).member("evaluations_since_best", state.evaluations_since_best);
  write_list(json, "recent_losses", state.recent_losses);
  write_list(json, "recent_norms", state.recent_norms);
  json.member("config", identity.config).member("data_hash", hex(identity.data_hash));
  json.member("tokenizer_hash", hex(identity.tokenizer_hash)).member("layout_hash", hex(identity.layout_hash));
  json.member("elements", static_cast<uint64_t>(spans.empty() ? 0 : spans[0].size())).key("checksums").begin_array();
  for (const auto& span : spans) json.value(hex(hash_bytes(bytes_of(span))));
  return json.end().end().finish();
}

Result<StateHead> parse_head(std::string_view text, std::string_view name) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, name));
  REGARD_TRY(const JsonObject root, document.root().as_object());
  const auto count = [&root](std::string_view key) -> Result<int64_t> {
    REGARD_TRY(const JsonValue value, root.get(key));
    return value.as_integer(0, kMaxCount);
  };
  StateHead head;
  REGARD_TRY(head.state.step, count("step"));
  REGARD_TRY(head.state.updates, count("updates"));
  REGARD_TRY(head.state.tokens, count("tokens"));
  REGARD_TRY(head.state.evaluated_step, count("evaluated_step"));
  REGARD_TRY(head.state.validation_loss, root.optional_number("validation_loss", -1e308, 1e308));
  REGARD_TRY(head.state.best_loss, root.optional_number("best_loss", -1e308, 1e308));
  REGARD_TRY(head.state.best_step, count("best_step"));
  REGARD_TRY(head.state.evaluations_since_best, count("evaluations_since_best"));
  REGARD_TRY(head.state.recent_losses, read_list(root, "recent_losses"));
  REGARD_TRY(head.state.recent_norms, read_list(root, "recent_norms"));
  REGARD_TRY(const JsonValue config, root.get("config"));
  REGARD_TRY(const std::string_view config_text, config.as_string());
  head.identity.config = std::string(config_text);
  REGARD_TRY(head.identity.data_hash, read_hex(root, "data_hash"));
  REGARD_TRY(head.identity.tokenizer_hash, read_hex(root, "tokenizer_hash"));
  REGARD_TRY(head.identity.layout_hash, read_hex(root, "layout_hash"));
  REGARD_TRY(const int64_t elements, count("elements"));
  head.elements = static_cast<uint64_t>(elements);
  REGARD_TRY(const JsonValue sums, root.get("checksums"));
  REGARD_TRY(const JsonArray checksums, sums.as_array());
  if (checksums.size() > kMaxSpans) return sums.refuse(fmt::format("{} spans; at most {} are possible", checksums.size(), kMaxSpans));
  for (const JsonValue sum : checksums) {
    REGARD_TRY(const std::string_view digits, sum.as_string());
    uint64_t number = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number, 16);
    if (digits.size() != 16 || error != std::errc() || end != digits.data() + digits.size()) return sum.refuse("expected 16 hexadecimal digits");
    head.checksums.push_back(number);
  }
  return head;
}

}  // namespace

namespace {

// Each step maps the running sum one to one for a given word, so a change of one word is never missed.
uint64_t add_bytes(uint64_t sum, std::span<const std::byte> bytes) {
  constexpr uint64_t kOdd = 0x9E3779B97F4A7C15u;
  while (!bytes.empty()) {
    const size_t n = std::min(bytes.size(), sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, bytes.data(), n);
    sum = (sum ^ word) * kOdd;
    sum ^= sum >> 29;
    bytes = bytes.subspan(n);
  }
  return sum;
}

Failure wrong_checksum(std::string_view name, size_t span) {
  return corrupt("[train] {}: the checksum of span {} does not match; the file is damaged", name, span);
}

}  // namespace

uint64_t hash_bytes(std::span<const std::byte> bytes) { return add_bytes(bytes.size(), bytes); }

uint64_t hash_layout(std::span<const nn::Parameter> parameters) {
  std::string text;
  for (const nn::Parameter& p : parameters) {
    text += fmt::format("{} {} {} {}\n", p.name, fmt::join(p.shape, "x"), p.offset, p.decay == nn::WeightDecay::kApplied ? 1 : 0);
  }
  return hash_bytes(std::as_bytes(std::span(text)));
}

Result<Done> write_state(const std::string& path, const RunState& state, const RunIdentity& identity, const Spans& spans, FileLayer& layer) {
  std::string head = head_text(state, identity, spans);
  head.append(ceil_div(kFixed + head.size(), kAlignment) * kAlignment - kFixed - head.size(), ' ');
  const uint64_t numbers[] = {head.size(), hash_bytes(std::as_bytes(std::span(head)))};
  std::string fixed(kMagic.begin(), kMagic.end());
  fixed.append(reinterpret_cast<const char*>(numbers), sizeof numbers);
  REGARD_TRY(AtomicFile file, AtomicFile::create(path, Overwrite::kReplace, layer));
  REGARD_CHECK(file.write(std::as_bytes(std::span(fixed))));
  REGARD_CHECK(file.write(std::as_bytes(std::span(head))));
  for (const auto& span : spans) REGARD_CHECK(file.write(bytes_of(span)));
  return file.commit();
}

Result<StateHead> read_state_head(const ByteSource& source, std::string_view name) {
  ByteReader reader(source);
  std::array<char, kMagic.size()> magic{};
  if (reader.remaining() < kFixed) return corrupt("[train] {}: {} bytes, too short for the state of a run", name, reader.remaining());
  REGARD_CHECK(reader.bytes({reinterpret_cast<uint8_t*>(magic.data()), magic.size()}));
  if (magic != kMagic) return corrupt("[train] {}: does not begin as the state of a run does", name);
  REGARD_TRY(const uint64_t size, reader.number<uint64_t>());
  REGARD_TRY(const uint64_t checksum, reader.number<uint64_t>());
  if (size > kMaxHead || size > reader.remaining()) return corrupt("[train] {}: a head of {} bytes, where {} follow", name, size, reader.remaining());
  std::string text(static_cast<size_t>(size), '\0');
  REGARD_CHECK(reader.bytes({reinterpret_cast<uint8_t*>(text.data()), text.size()}));
  if (hash_bytes(std::as_bytes(std::span(text))) != checksum) return corrupt("[train] {}: the checksum of the head does not match", name);
  REGARD_TRY(StateHead head, parse_head(text, name));
  head.data_begin = reader.position();
  const auto bytes = checked_mul<uint64_t>(head.elements, head.checksums.size() * sizeof(float));
  if (!bytes || *bytes != reader.remaining()) {
    return corrupt("[train] {}: {} spans of {} numbers do not take the {} bytes behind the head", name, head.checksums.size(), head.elements,
                   reader.remaining());
  }
  return head;
}

Result<Done> read_state_spans(const ByteSource& source, const StateHead& head, const Spans& spans, std::string_view name) {
  if (spans.size() != head.checksums.size()) {
    return failure(Code::kInvalidArgument, "[train] {}: {} spans; this run has {}", name, head.checksums.size(), spans.size());
  }
  uint64_t offset = head.data_begin;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].size() != head.elements) {
      return failure(Code::kInvalidArgument, "[train] {}: spans of {} numbers; this model has {}", name, head.elements, spans[i].size());
    }
    const auto bytes = std::as_writable_bytes(spans[i]);
    REGARD_CHECK(source.read_at(offset, {reinterpret_cast<uint8_t*>(bytes.data()), bytes.size()}));
    if (hash_bytes(bytes) != head.checksums[i]) return wrong_checksum(name, i);
    offset += bytes.size();
  }
  return Done{};
}

Result<Done> check_state_spans(const ByteSource& source, const StateHead& head, std::string_view name) {
  constexpr uint64_t kPiece = uint64_t{1} << 20;  // whole words
  std::vector<std::byte> piece(kPiece);
  const uint64_t bytes = head.elements * sizeof(float);
  uint64_t offset = head.data_begin;
  for (size_t i = 0; i < head.checksums.size(); ++i) {
    uint64_t sum = bytes;
    for (uint64_t done = 0; done < bytes; done += kPiece) {
      const auto part = std::span(piece).first(static_cast<size_t>(std::min(kPiece, bytes - done)));
      REGARD_CHECK(source.read_at(offset + done, {reinterpret_cast<uint8_t*>(part.data()), part.size()}));
      sum = add_bytes(sum, part);
    }
    if (sum != head.checksums[i]) return wrong_checksum(name, i);
    offset += bytes;
  }
  return Done{};
}

}  // namespace regard::train_loop
