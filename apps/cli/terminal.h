// The two streams of the program and the signals: standard output carries data only, standard error everything else, and
// escape bytes go to terminals only.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "regard/stop_token.h"

namespace regard::cli {

/// The reader of standard output has gone: not worth a message, exit status 141.
struct PipeClosed {};

/// Standard output. Buffered; every failure to write is noticed. Errors: Error(kIo), PipeClosed.
class Output {
 public:
  void write(std::string_view text);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    write(fmt::format(format, std::forward<Args>(args)...));
  }
  void flush();

 private:
  std::string buffer_;
};

enum class Color { kAuto, kAlways, kNever };

/// Whether escape codes may be written to `descriptor`: NO_COLOR and TERM=dumb say no, and so does everything that is not a
/// terminal, unless --color says otherwise.
bool use_color(int descriptor, Color color);
bool is_terminal(int descriptor);
/// Columns of the terminal on standard error, 80 when there is none.
int terminal_columns();

/// `text` on one line, with every control character and every byte that is no UTF-8 written out: \n, \0, \x1b, \u009b. Names and
/// values that are quoted come from outside, and a terminal would obey what they hold.
std::string printable(std::string_view text);

/// The same for a message; the line of a mask that it ends with and the '^~~' below stay lines of their own.
std::string printable_message(std::string_view message);

/// Standard error. Failures to write are ignored: there is nobody left to tell.
class Messages {
 public:
  struct Style {
    bool quiet = false;
    bool progress = true;
    Color color = Color::kAuto;
  };
  void set_style(const Style& style) { style_ = style; }
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  /// "regard generate: MESSAGE"; an error is shown even when quiet.
  void error(std::string_view message);
  void note(std::string_view message);
  /// A prompt for input, without a line end; only on terminals.
  void ask(std::string_view prompt);

  /// How far something is: a bar that is redrawn on a terminal, a plain line every ten seconds elsewhere.
  void progress(std::string_view what, uint64_t done, uint64_t total);
  /// Removes the bar; the next line begins at the left.
  void end_progress();

 private:
  using Clock = std::chrono::steady_clock;

  Style style_;
  std::string prefix_ = "regard";
  std::optional<Clock::time_point> drawn_;  // last redraw, or last plain line
  bool bar_on_screen_ = false;
};

/// Set by the first SIGINT or SIGTERM; the next one ends the process. SIGPIPE is an error of the write that caused it.
const StopToken& stop_token();
/// The signal that came, or 0.
int signal_received();

/// How long a wait for data lasts at most before the stop token is looked at again.
inline constexpr int kLookForSignalsEveryMs = 200;

/// All of standard input. Errors: Error(kIo); Error(kCancelled) on a signal; Error(kResourceExhausted) above `max_bytes`.
std::string read_standard_input(size_t max_bytes);
/// The next line of standard input without its end, or nothing at the end. Errors: as above.
std::optional<std::string> read_line(size_t max_bytes);

}  // namespace regard::cli
