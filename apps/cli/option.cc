#include "option.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace regard::cli {
namespace {

// Damerau-Levenshtein distance, restricted form: no part is edited twice.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    before.swap(last);
    last.swap(now);
  }
  return last[b.size()];
}

std::string number(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) return fmt::format("{}", static_cast<long long>(value));
  return fmt::format("{}", value);
}

}  // namespace

std::string environment_name(std::string_view option) {
  std::string name = "REGARD_";
  for (char c : option) name += c == '-' ? '_' : static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return name;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string describe_value(const Option& option) {
  std::vector<std::string> parts;
  const std::string unit = option.unit.empty() ? "" : fmt::format(" {}", option.unit);
  const bool low = std::isfinite(option.min), high = std::isfinite(option.max);
  if (low && high) {
    parts.push_back(fmt::format("{} to {}{}", number(option.min), number(option.max), unit));
  } else if (low) {
    parts.push_back(fmt::format("{} or more{}", number(option.min), unit));
  } else if (option.type == Type::kNatural) {
    parts.push_back(fmt::format("0 to {}", std::numeric_limits<uint64_t>::max()));
  } else if (!unit.empty()) {
    parts.push_back(std::string(option.unit));
  }
  if (option.presence == Presence::kRequired) parts.push_back("required");
  if (option.repeat == Repeat::kMany) parts.push_back("may be repeated");
  if (!option.fallback.empty()) parts.push_back(fmt::format("default {}", option.fallback));
  parts.push_back(environment_name(option.name));
  return fmt::format("[{}]", fmt::join(parts, "; "));
}

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  // A third of the letters may be wrong: "max-token" is near "max-tokens", "seed" is not near "mask".
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    size_t d = distance(word, candidate);
    if (word.size() >= 3 && candidate.starts_with(word)) d = std::min<size_t>(d, 1);
    if (d < least) {
      least = d;
      best = candidate;
    }
  }
  return best;
}

}  // namespace regard::cli
