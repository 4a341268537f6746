// A whole model from its file: tokens per second of prefill and decode, head included. The same figures as peers/llama_cpp.py
// measures; README.md says how tools/bench runs the two side by side. Start at Bench::measure().
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "harness.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/runtime.h"
#include "regard/tokenizer.h"

namespace regard::bench {
namespace {

constexpr int64_t kPrefillTokens = 512;
constexpr int64_t kDecodeSteps = 64;
constexpr int64_t kLongContext = 2048;

struct Figure {
  std::string name;    // "prefill" or "decode"
  int64_t tokens = 0;  // of the prompt, or remembered before the first measured step
  bool operator<(const Figure& other) const { return std::pair(name, tokens) < std::pair(other.name, other.tokens); }
};
const std::vector<Figure> kFigures = {{"prefill", kPrefillTokens}, {"decode", 128}, {"decode", kLongContext}};

struct Arguments {
  std::string model;
  std::vector<int> threads = {1, 2};
  int rounds = 5;
  std::string only;
  enum class Format { kText, kJson } format = Format::kText;
  enum class Mode { kAll, kServe, kCeilings } mode = Mode::kAll;
};

// Wall time is what a user waits for; the time of the process's own threads is what is left of it when others use the machine.
struct Rate {
  double per_second = 0;
  double cpu_per_second = 0;
};

double seconds_of(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

ModelOptions long_enough() {
  ModelOptions options;
  options.context = kLongContext + kDecodeSteps;
  return options;
}

class Bench {
 public:
  explicit Bench(const std::string& path) : model_(Model::load(path, long_enough())), logits_(static_cast<size_t>(model_.info().vocab_size)) {}

  const Model& model() const { return model_; }

  Rate measure(const Figure& figure, int threads) {
    set_num_threads(threads);
    Sequence& sequence = remembered(figure);
    const bool prefill = figure.name == "prefill";
    sequence.truncate(prefill ? 0 : figure.tokens);
    const double cpu = seconds_of(CLOCK_PROCESS_CPUTIME_ID), wall = seconds_of(CLOCK_MONOTONIC);
    if (prefill)
      feed(sequence, figure.tokens);
    else
      decode(sequence, kDecodeSteps);
    const double wall_end = seconds_of(CLOCK_MONOTONIC), cpu_end = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
    const auto count = static_cast<double>(prefill ? figure.tokens : kDecodeSteps);
    return {count / (wall_end - wall), count / (cpu_end - cpu)};
  }

  // The ids of a text and the most likely next one.
  std::pair<std::vector<int32_t>, int64_t> answer(const std::string& text) {
    std::vector<int32_t> ids = model_.tokenizer().encode(text, {SpecialTokens::kAsText, AddSpecial::kAsModel});
    Sequence sequence(model_);
    forward(sequence, ids);
    return {std::move(ids), std::max_element(logits_.begin(), logits_.end()) - logits_.begin()};
  }

  // A row is a row: in one piece, in pieces, step by step, on one thread and on two. A wrong mask, cache or kernel that depends
  // on the number of rows shows here; that the numbers mean the right text is for the tests and for answer().
  void verify() {
    constexpr int64_t kTokens = 40;
    std::vector<float> whole;
    for (const auto& [piece, threads] : {std::pair<int64_t, int>{kTokens, 1}, {kTokens, 2}, {7, 1}, {1, 2}}) {
      set_num_threads(threads);
      Sequence sequence(model_);
      while (sequence.size() < kTokens) feed(sequence, std::min(piece, kTokens - sequence.size()));
      if (whole.empty()) {
        whole = logits_;
        const auto [low, high] = std::minmax_element(whole.begin(), whole.end());
        require_answer(*low < *high && std::all_of(whole.begin(), whole.end(), [](float x) { return x - x == 0; }), "logits are constant or not finite");
      }
      require_answer(std::memcmp(whole.data(), logits_.data(), whole.size() * sizeof(float)) == 0,
                     "logits after pieces of " + std::to_string(piece) + " tokens on " + std::to_string(threads) + " threads differ from those in one piece");
    }
  }

 private:
  void forward(Sequence& sequence, const std::vector<int32_t>& ids) {
    const Feed feed{&sequence, ids, Feed::Rows::kLast};
    model_.forward({&feed, 1}, {}, logits_.data());
  }

  // The next `count` ids of a fixed list. Which ids they are does not matter for the time.
  void feed(Sequence& sequence, int64_t count) {
    std::vector<int32_t> ids;
    for (int64_t i = sequence.size(); i < sequence.size() + count; ++i) ids.push_back(static_cast<int32_t>((7919 * i + 13) % model_.info().vocab_size));
    forward(sequence, ids);
  }

  void decode(Sequence& sequence, int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) feed(sequence, 1);
  }

  // The sequence of a figure, filled and warmed up when it is first asked for.
  Sequence& remembered(const Figure& figure) {
    const auto found = sequences_.find(figure);
    if (found != sequences_.end()) return found->second;
    Sequence& sequence = sequences_.emplace(figure, Sequence(model_)).first->second;
    while (sequence.size() < figure.tokens) feed(sequence, std::min(kPrefillTokens, figure.tokens - sequence.size()));
    decode(sequence, 4);
    return sequence;
  }

  Model model_;
  std::vector<float> logits_;
  std::map<Figure, Sequence> sequences_;
};

void print_about() {
  std::printf("{\"program\": \"regard\", \"isa\": \"%s\"}\n", machine_info().isa.c_str());
}

void print_json(const Figure& figure, int threads, const Rate& rate) {
  std::printf("{\"figure\": \"%s\", \"tokens\": %ld, \"threads\": %d, \"per_second\": %.3f, \"cpu_per_second\": %.3f}\n", figure.name.c_str(),
              static_cast<long>(figure.tokens), threads, rate.per_second, rate.cpu_per_second);
}

// One request a line, one answer a line, so that a driver can alternate between this program and another.
void serve(Bench& bench) {
  print_about();
  std::fflush(stdout);
  for (std::string line; std::getline(std::cin, line); std::fflush(stdout)) {
    if (line.starts_with("answer ")) {
      const auto [ids, next] = bench.answer(line.substr(7));
      std::printf("{\"ids\": [");
      for (size_t i = 0; i < ids.size(); ++i) std::printf("%s%d", i > 0 ? ", " : "", static_cast<int>(ids[i]));
      std::printf("], \"next\": %ld}\n", static_cast<long>(next));
      continue;
    }
    std::istringstream words(line);
    Figure figure;
    int threads = 0;
    require_answer(static_cast<bool>(words >> figure.name >> figure.tokens >> threads) && (figure.name == "prefill" || figure.name == "decode"),
                   "request '" + line + "'; expected: prefill|decode TOKENS THREADS, or: answer TEXT");
    print_json(figure, threads, bench.measure(figure, threads));
  }
}

void measure_all(Bench& bench, const Arguments& arguments) {
  const bool json = arguments.format == Arguments::Format::kJson;
  if (json) print_about();
  for (const Figure& figure : kFigures) {
    if (!arguments.only.empty() && arguments.only != figure.name) continue;
    for (int threads : arguments.threads) {
      std::vector<double> rates;
      for (int round = 0; round < arguments.rounds; ++round) {
        const Rate rate = bench.measure(figure, threads);
        rates.push_back(rate.per_second);
        if (json) print_json(figure, threads, rate);
      }
      std::sort(rates.begin(), rates.end());
      if (!json)
        std::printf("%-7s %4ld  %d thread%s  %8.1f tokens/s  (%.1f to %.1f, %zu rounds)\n", figure.name.c_str(), static_cast<long>(figure.tokens), threads,
                    threads == 1 ? " " : "s", rates[rates.size() / 2], rates.front(), rates.back(), rates.size());
      std::fflush(stdout);
    }
  }
}

[[noreturn]] void usage() {
  std::fprintf(stderr, "usage: model_bench MODEL [--threads 1,2] [--rounds N] [--only prefill|decode] [--json] [--serve]\n       model_bench --ceilings\n");
  std::exit(2);
}

// Numbers from 1 to 1000, separated by commas.
std::vector<int> numbers(const std::string& text) {
  std::vector<int> result;
  std::istringstream list(text);
  for (std::string item; std::getline(list, item, ',');) {
    const long n = std::strtol(item.c_str(), nullptr, 10);
    if (n < 1 || n > 1000) usage();
    result.push_back(static_cast<int>(n));
  }
  if (result.empty()) usage();
  return result;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 >= argc) usage();
      return argv[++i];
    };
    if (word == "--threads")
      a.threads = numbers(value());
    else if (word == "--rounds")
      a.rounds = numbers(value()).front();
    else if (word == "--only")
      a.only = value();
    else if (word == "--json")
      a.format = Arguments::Format::kJson;
    else if (word == "--serve")
      a.mode = Arguments::Mode::kServe;
    else if (word == "--ceilings")
      a.mode = Arguments::Mode::kCeilings;
    else if (a.model.empty() && !word.starts_with("-"))
      a.model = word;
    else
      usage();
  }
  if (a.model.empty() != (a.mode == Arguments::Mode::kCeilings) || (!a.only.empty() && a.only != "prefill" && a.only != "decode")) usage();
  return a;
}

}  // namespace
}  // namespace regard::bench

int main(int argc, char** argv) {
  using namespace regard::bench;
  const Arguments arguments = parse(argc, argv);
  try {
    if (arguments.mode == Arguments::Mode::kCeilings || (arguments.mode == Arguments::Mode::kAll && arguments.format == Arguments::Format::kText))
      print(measure_ceilings());
    if (arguments.mode == Arguments::Mode::kCeilings) return 0;
    Bench bench(arguments.model);
    bench.verify();
    if (arguments.mode == Arguments::Mode::kServe)
      serve(bench);
    else
      measure_all(bench, arguments);
  } catch (const regard::Error& error) {
    std::fprintf(stderr, "model_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
