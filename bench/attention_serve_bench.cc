// Attention on problems that another program made, one request at a time, so that compare_attention.py can alternate
// between this library and its peers. Requests on standard input, one line of JSON for each on standard output:
//
//   load DIRECTORY THREADS forward|bf16|backward MASK...   q.npy, k.npy, v.npy (and dout.npy): [batch, heads, seq, dim]
//   run                                               computes once and says how many seconds it took
//   save                                              writes out.npy (and dq.npy, dk.npy, dv.npy) into the directory
#include <chrono>
#include <cstdio>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "harness.h"
#include "regard/attention_backward.h"
#include "regard/error.h"
#include "regard/npy.h"
#include "regard/runtime.h"

namespace {

using namespace regard;

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> values;
  TensorView<float> view() { return {values.data(), {shape[0], shape[1], shape[2], shape[3]}}; }

  static Tensor load(const std::string& path) {
    const NpyArray array = load_npy(path);
    if (array.shape.size() != 4) throw Error(Code::kInvalidArgument, path + " is not [batch, heads, seq, dim]");
    return {array.shape, array.to_f32()};
  }
  static Tensor like(const Tensor& other, int64_t last) {
    Tensor t{other.shape, {}};
    t.shape[3] = last;
    t.values.resize(static_cast<size_t>(t.shape[0] * t.shape[1] * t.shape[2] * t.shape[3]));
    return t;
  }
};

struct Problem {
  std::string directory;
  bool backward = false;
  AttentionOptions options;
  Mask mask = Mask::full();
  Tensor q, k, v, dout, out, dq, dk, dv;
  std::vector<float> lse;

  explicit Problem(std::istringstream& words) {
    int threads = 1;
    std::string pass, text;
    words >> directory >> threads >> pass;
    std::getline(words, text);
    set_num_threads(threads);
    mask = Mask::parse(text);
    backward = pass == "backward";
    if (pass == "bf16") options.arithmetic = AttentionArithmetic::kBf16Dots;
    q = Tensor::load(directory + "/q.npy");
    k = Tensor::load(directory + "/k.npy");
    v = Tensor::load(directory + "/v.npy");
    out = Tensor::like(q, v.shape[3]);
    lse.resize(out.values.size() / static_cast<size_t>(v.shape[3]));
    if (!backward) return;
    dout = Tensor::load(directory + "/dout.npy");
    dq = Tensor::like(q, q.shape[3]);
    dk = Tensor::like(k, k.shape[3]);
    dv = Tensor::like(v, v.shape[3]);
  }

  void run() {
    const TensorView<float> lse_view(lse.data(), {q.shape[0], q.shape[1], q.shape[2]});
    attend(q.view(), k.view(), v.view(), mask, options, out.view(), lse_view);
    if (backward)
      attend_backward(q.view(), k.view(), v.view(), out.view(), lse_view, dout.view(), {}, mask, options, dq.view(), dk.view(),
                      dv.view());
  }

  void save() {
    save_npy(directory + "/out.npy", out.shape, out.values);
    if (!backward) return;
    save_npy(directory + "/dq.npy", dq.shape, dq.values);
    save_npy(directory + "/dk.npy", dk.shape, dk.values);
    save_npy(directory + "/dv.npy", dv.shape, dv.values);
  }
};

std::string seconds_text(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9f", seconds);
  return text;
}

}  // namespace

int main() {
  try {
    bench::say_who(bench::measure_ceilings());
    std::optional<Problem> problem;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string request;
      words >> request;
      if (request == "load") {
        problem.emplace(words);
        problem->run();
        bench::say("{\"loaded\": true}");
      } else if (request == "run" && problem) {
        const auto begin = std::chrono::steady_clock::now();
        problem->run();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        bench::say("{\"seconds\": " + seconds_text(seconds) + "}");
      } else if (request == "save" && problem) {
        problem->save();
        bench::say("{\"saved\": true}");
      } else {
        throw Error(Code::kInvalidArgument, "expected load, run or save, got '" + line + "'");
      }
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "attention_serve_bench: %s\n", error.what());
    return 1;
  }
}
