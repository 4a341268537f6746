#include "train/run_log.h"

#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "format/json_reader.h"
#include "regard/json.h"
#include "runtime/file.h"

namespace regard::train_loop {
namespace {

constexpr uint64_t kMaxLog = uint64_t{1} << 30;

struct Line {
  int64_t step = 0;
  std::optional<double> training, validation;
};

Result<Line> parse_line(std::string_view text, std::string_view name) {
  REGARD_TRY(const JsonDocument document, JsonDocument::parse(text, name));
  REGARD_TRY(const JsonObject object, document.root().as_object());
  Line line;
  REGARD_TRY(const JsonValue step, object.get("step"));
  REGARD_TRY(line.step, step.as_integer(0));
  REGARD_TRY(line.training, object.optional_number("loss", -1e308, 1e308));
  REGARD_TRY(line.validation, object.optional_number("validation_loss", -1e308, 1e308));
  return line;
}

// Calls f(text, line) for every whole line.
template <class F>
Result<Done> for_lines(const std::string& path, F&& f) {
  REGARD_TRY(const FileBytes bytes, read_file(path, kMaxLog));
  std::string_view text(reinterpret_cast<const char*>(bytes.bytes().data()), bytes.bytes().size());
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == std::string_view::npos) return Done{};
    REGARD_TRY(const Line line, parse_line(text.substr(0, end), fmt::format("{}:{}", path, number)));
    f(text.substr(0, end + 1), line);
    text.remove_prefix(end + 1);
  }
}

}  // namespace

Result<RunLog> RunLog::open(const std::string& path, int64_t step, FileLayer& layer) {
  std::string kept;
  const auto read = for_lines(path, [&](std::string_view text, const Line& line) {
    if (line.step <= step) kept += text;
  });
  if (!read && read.failure().code != Code::kNotFound) return read.failure();
  REGARD_CHECK(write_file(path, std::as_bytes(std::span(kept)), Overwrite::kReplace, layer));
  RunLog log(path, layer);
  log.descriptor_ = layer.open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC, 0);
  if (log.descriptor_ < 0) return failure(Code::kIo, "[train] cannot open '{}': {}", path, std::generic_category().message(errno));
  return log;
}

RunLog::RunLog(RunLog&& other) noexcept
    : path_(std::move(other.path_)), layer_(other.layer_), descriptor_(std::exchange(other.descriptor_, -1)) {}

RunLog::~RunLog() {
  if (descriptor_ >= 0) layer_->close(descriptor_);
}

Result<Done> RunLog::step(const Step& step) {
  JsonWriter json;
  json.begin_object().member("step", step.step).member("loss", step.loss).member("learning_rate", step.learning_rate);
  json.member("gradient_norm", step.gradient_norm).member("tokens", step.tokens).member("seconds", step.seconds);
  if (step.skipped) json.member("skipped", true);
  return append(json.end().finish());
}

Result<Done> RunLog::evaluation(const Evaluation& e) {
  JsonWriter json;
  json.begin_object().member("step", e.step).member("validation_loss", e.loss).member("accuracy", e.accuracy).member("counted", e.counted);
  if (e.questions > 0) json.member("questions", e.questions).member("solved", e.solved);
  return append(json.member("best", e.best).end().finish());
}

Result<Done> RunLog::append(std::string line) {
  line += '\n';
  std::string_view rest = line;
  while (!rest.empty()) {
    const ssize_t put = layer_->write(descriptor_, rest.data(), rest.size());
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return failure(Code::kIo, "[train] cannot write to '{}': {}", path_, std::generic_category().message(put < 0 ? errno : ENOSPC));
    rest.remove_prefix(static_cast<size_t>(put));
  }
  return Done{};
}

Result<LossCurves> read_loss_curves(const std::string& path) {
  LossCurves curves;
  REGARD_CHECK(for_lines(path, [&](std::string_view, const Line& line) {
    if (line.training) curves.training.push_back({line.step, *line.training});
    if (line.validation) curves.validation.push_back({line.step, *line.validation});
  }));
  return curves;
}

}  // namespace regard::train_loop
