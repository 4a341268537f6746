#include "terminal.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>

#include "regard/error.h"

namespace regard::cli {
namespace {

constexpr size_t kFlushAt = 1 << 16;
constexpr auto kRedrawEvery = std::chrono::milliseconds(100);
constexpr auto kPlainLineEvery = std::chrono::seconds(10);

constinit StopToken global_stop;
constinit std::atomic<int> first_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void on_signal(int signal) {
  int none = 0;
  if (!first_signal.compare_exchange_strong(none, signal)) _exit(128 + signal);
  global_stop.request_stop();
}

std::string reason(int error) { return std::generic_category().message(error); }

// Writes all of it; returns the errno of a failure, or 0. An interruption by a signal does not cut data short.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    if (put >= 0) {
      text.remove_prefix(static_cast<size_t>(put));
    } else if (errno == EAGAIN) {  // somebody made the pipe non-blocking
      pollfd wait{descriptor, POLLOUT, 0};
      poll(&wait, 1, 1000);
    } else if (errno != EINTR) {
      return errno;
    }
  }
  return 0;
}

// Bytes of the character that `text` begins with; 0 where that is no UTF-8.
size_t character_size(std::string_view text) {
  const auto byte = [text](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const size_t size = first >= 0xc2 && first < 0xe0 ? 2 : first >= 0xe0 && first < 0xf0 ? 3 : first >= 0xf0 && first < 0xf5 ? 4 : 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0u) != 0x80u) return 0;
  // Written longer than need be, halves of a pair, beyond the last one.
  if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f) || (first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return 0;
  return size;
}

std::string input_buffer;  // what was read beyond the last line

// Appends what comes to input_buffer; false at the end of input.
bool read_more(size_t max_bytes) {
  char chunk[1 << 16];
  for (;;) {
    // Waiting in short steps: a signal that comes just before a blocking read would not be seen until the next one.
    pollfd wait{STDIN_FILENO, POLLIN, 0};
    const int ready = poll(&wait, 1, kLookForSignalsEveryMs);
    if (global_stop.stop_requested()) throw Error(Code::kCancelled, "stopped on request");
    if (ready == 0) continue;
    const ssize_t got = ::read(STDIN_FILENO, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw Error(Code::kIo, fmt::format("cannot read standard input: {}", reason(errno)));
    if (got == 0) return false;
    if (input_buffer.size() + static_cast<size_t>(got) > max_bytes) {
      throw Error(Code::kResourceExhausted, fmt::format("standard input has more than {} bytes", max_bytes));
    }
    input_buffer.append(chunk, static_cast<size_t>(got));
    return true;
  }
}

}  // namespace

void Output::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kFlushAt) flush();
}

void Output::flush() {
  const std::string text = std::exchange(buffer_, {});
  const int error = write_all(STDOUT_FILENO, text);
  if (error == EPIPE) throw PipeClosed();
  if (error != 0) throw Error(Code::kIo, fmt::format("cannot write to standard output: {}", reason(error)));
}

bool is_terminal(int descriptor) { return isatty(descriptor) == 1; }

bool use_color(int descriptor, Color color) {
  if (color != Color::kAuto) return color == Color::kAlways;
  const char* none = std::getenv("NO_COLOR");
  const char* term = std::getenv("TERM");
  if ((none != nullptr && *none != '\0') || term == nullptr || std::string_view(term) == "dumb") return false;
  return is_terminal(descriptor);
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t size = character_size(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (byte == '\n') out += "\\n";
    else if (byte == '\t') out += "\\t";
    else if (byte == '\r') out += "\\r";
    else if (byte == '\0') out += "\\0";
    else if (size == 0 || byte < 0x20 || byte == 0x7f) out += fmt::format("\\x{:02x}", byte);
    else if (byte == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) out += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[1]));
    else out += text.substr(0, size);
    text.remove_prefix(std::max<size_t>(size, 1));
  }
  return out;
}

std::string printable_message(std::string_view message) {
  const size_t marks_at = message.rfind('\n');
  const size_t text_at = marks_at == std::string_view::npos || marks_at == 0 ? std::string_view::npos : message.rfind('\n', marks_at - 1);
  if (text_at == std::string_view::npos) return printable(message);
  const std::string_view text = message.substr(text_at + 1, marks_at - text_at - 1), marks = message.substr(marks_at + 1);
  const size_t caret = marks.find_first_not_of(' ');
  const bool points = caret != std::string_view::npos && marks[caret] == '^' && marks.find_first_not_of('~', caret + 1) == std::string_view::npos;
  if (!points || !text.starts_with("  ")) return printable(message);
  return fmt::format("{}\n{}\n{}", printable(message.substr(0, text_at)), printable(text), marks);
}

void Messages::error(std::string_view message) {
  end_progress();
  const bool color = use_color(STDERR_FILENO, style_.color);
  write_all(STDERR_FILENO, fmt::format("{}{}:{} {}\n", color ? "\x1b[1m" : "", prefix_, color ? "\x1b[0m" : "", printable_message(message)));
}

void Messages::note(std::string_view message) {
  if (!style_.quiet) error(message);
}

void Messages::ask(std::string_view prompt) {
  if (is_terminal(STDERR_FILENO)) write_all(STDERR_FILENO, prompt);
}

void Messages::progress(std::string_view what, uint64_t done, uint64_t total) {
  if (style_.quiet || !style_.progress) return;
  const auto now = Clock::now();
  const char* term = std::getenv("TERM");
  const bool bar = is_terminal(STDERR_FILENO) && term != nullptr && std::string_view(term) != "dumb";
  const uint64_t percent = total == 0 ? 100 : static_cast<uint64_t>(static_cast<double>(done) / static_cast<double>(total) * 100);
  if (!bar) {
    if (!drawn_) drawn_ = now;  // nothing for what takes less than ten seconds
    if (now - *drawn_ < kPlainLineEvery) return;
    drawn_ = now;
    write_all(STDERR_FILENO, fmt::format("{}: {} {} %\n", prefix_, what, percent));
    return;
  }
  if (drawn_ && now - *drawn_ < kRedrawEvery) return;
  drawn_ = now;
  bar_on_screen_ = true;
  const int width = std::clamp(terminal_columns() - static_cast<int>(what.size()) - 10, 0, 40);
  const auto filled = static_cast<size_t>(width) * static_cast<size_t>(std::min<uint64_t>(percent, 100)) / 100;
  write_all(STDERR_FILENO, fmt::format("\r\x1b[K{} [{}{}] {:3} %", what, std::string(filled, '#'),
                                       std::string(static_cast<size_t>(width) - filled, ' '), percent));
}

void Messages::end_progress() {
  if (std::exchange(bar_on_screen_, false)) write_all(STDERR_FILENO, "\r\x1b[K");
  drawn_.reset();
}

// Before main() and all other objects: a signal that comes while the program begins asks for a stop, too.
[[gnu::constructor(101)]] static void install_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // without SA_RESTART: a read from the terminal must end so that the stop is seen
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, nullptr);
}

const StopToken& stop_token() { return global_stop; }
int signal_received() { return first_signal.load(); }

std::string read_standard_input(size_t max_bytes) {
  while (read_more(max_bytes)) {
  }
  return std::exchange(input_buffer, {});
}

std::optional<std::string> read_line(size_t max_bytes) {
  size_t end = input_buffer.find('\n');
  while (end == std::string::npos) {
    if (!read_more(max_bytes)) {
      if (input_buffer.empty()) return std::nullopt;
      return std::exchange(input_buffer, {});
    }
    end = input_buffer.find('\n');
  }
  std::string line = input_buffer.substr(0, end);
  input_buffer.erase(0, end + 1);
  return line;
}

}  // namespace regard::cli
