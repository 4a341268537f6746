// A row is a row: the bits of logits do not depend on chunks, steps, batch, slot, threads or what else is in the batch.
// Compared as bits, on a tiny model of each kind beyond several key tiles; the real models too when REGARD_MODELS names their
// directory. (Padding does not exist here: a batch is a list of texts of their own lengths.)
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/rng.h"
#include "kernels/registry.h"
#include "regard/error.h"
#include "regard/model.h"
#include "runtime/thread_pool.h"
#include "support/golden.h"

namespace regard {
namespace {

constexpr int64_t kLength = 700;  // two whole tiles of 256 keys and a part

std::vector<int32_t> random_ids(int64_t vocab, int64_t n, uint64_t seed) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < n; ++i) ids.push_back(static_cast<int32_t>(random_bits(seed, 0, static_cast<uint64_t>(i)) % static_cast<uint64_t>(vocab)));
  return ids;
}

// Logits of some rows of a text, the way a test case cuts it.
struct Cut {
  std::vector<int64_t> pieces;  // tokens per call; the last one repeats
  int64_t chunk = 512;
};

class Bits {
 public:
  Bits(const Model& model, std::vector<int32_t> ids) : model_(model), ids_(std::move(ids)), vocab_(static_cast<size_t>(model.info().vocab_size)) {}

  // One row of logits for each multiple of `every`, and the last.
  std::vector<float> run(const Cut& cut, int64_t every) const {
    std::vector<float> out;
    Sequence sequence(model_);
    std::span<const int32_t> rest = ids_;
    for (size_t piece = 0; !rest.empty(); ++piece) {
      const auto n = std::min(rest.size(), static_cast<size_t>(cut.pieces[std::min(piece, cut.pieces.size() - 1)]));
      const int64_t begin = sequence.size();
      ForwardOptions options;
      options.chunk = cut.chunk;
      std::vector<float> rows(n * vocab_);
      const Feed feed{&sequence, rest.first(n), Feed::Rows::kAll};
      model_.forward({&feed, 1}, options, rows.data());
      for (size_t i = 0; i < n; ++i)
        if (const int64_t row = begin + static_cast<int64_t>(i); row % every == 0 || row + 1 == static_cast<int64_t>(ids_.size()))
          out.insert(out.end(), rows.begin() + static_cast<std::ptrdiff_t>(i * vocab_), rows.begin() + static_cast<std::ptrdiff_t>((i + 1) * vocab_));
      rest = rest.subspan(n);
    }
    return out;
  }

  // The last row when the text sits in slot `slot` of a batch of other texts of other lengths.
  std::vector<float> in_batch(size_t slot, size_t batch) const {
    std::vector<Sequence> sequences;
    std::vector<std::vector<int32_t>> texts(batch);
    std::vector<Feed> feeds;
    for (size_t i = 0; i < batch; ++i) {
      sequences.emplace_back(model_);
      texts[i] = i == slot ? ids_ : random_ids(model_.info().vocab_size, 1 + static_cast<int64_t>(37 * i % 91), 100 + i);
    }
    for (size_t i = 0; i < batch; ++i) feeds.push_back({&sequences[i], texts[i], Feed::Rows::kLast});
    std::vector<float> out(batch * vocab_);
    model_.forward(feeds, {}, out.data());
    return {out.begin() + static_cast<std::ptrdiff_t>(slot * vocab_), out.begin() + static_cast<std::ptrdiff_t>((slot + 1) * vocab_)};
  }

 private:
  const Model& model_;
  std::vector<int32_t> ids_;
  size_t vocab_;
};

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << what;
}

void compare_all(const Model& model, int64_t length, const std::vector<int>& thread_counts) {
  const Bits bits(model, random_ids(model.info().vocab_size, length, 1));
  const int64_t every = std::max<int64_t>(1, length / 23);
  const int threads_before = default_pool().size();
  const std::vector<float> whole = bits.run({{length}, length}, every);
  const std::vector<float> last(whole.end() - static_cast<std::ptrdiff_t>(model.info().vocab_size), whole.end());
  for (int64_t chunk : {1, 7, 64, 512}) expect_same_bits(bits.run({{length}, chunk}, every), whole, "chunks");
  expect_same_bits(bits.run({{1}}, every), whole, "decode step by step");
  expect_same_bits(bits.run({{length / 2, 1}}, every), whole, "prefill, then decode");
  expect_same_bits(bits.run({{255, 1, 1, 1, 300}}, every), whole, "calls across the borders of a tile");
  for (size_t slot : {0, 2, 4}) expect_same_bits(bits.in_batch(slot, 5), last, "slots of a batch");
  for (int threads : thread_counts) {
    set_default_pool_size(threads);
    expect_same_bits(bits.run({{length}, length}, every), whole, "threads, prefill");
    expect_same_bits(bits.run({{length - 8, 1}}, every), whole, "threads, decode");
  }
  set_default_pool_size(threads_before);
  std::printf("%s on %s: prefill whole = chunks of 1, 7, 64, 512 = step by step = split calls = 3 slots of a batch of 5 = %zu thread counts, %lld tokens\n",
              model.info().family.c_str(), std::string(isa_name(kernels::kernels().isa)).c_str(), thread_counts.size(), static_cast<long long>(length));
}

TEST(Bits, TinyModels) {
  for (const char* name : {"hf/llama", "hf/mistral", "hf/qwen3", "gguf/qwen2_q5_0.gguf", "gguf/gemma3_q4_k.gguf", "gguf/llama_mixed.gguf"}) {
    SCOPED_TRACE(name);
    ModelOptions options;
    options.context = 1024;
    compare_all(Model::load(test::golden_path(name), options), kLength, {1, 2, 3, 8});
  }
}

TEST(Bits, LearnedPositions) { compare_all(Model::load(test::golden_path("hf/gpt2")), 80, {1, 2, 3, 8}); }

TEST(Bits, EveryTypeOfCache) {
  std::vector<uint64_t> bytes;
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kI8}) {
    SCOPED_TRACE(info(type).name);
    ModelOptions options;
    options.context = 1024;
    options.cache_type = type;
    const Model model = Model::load(test::golden_path("hf/qwen3"), options);
    compare_all(model, kLength, {1, 3});
    bytes.push_back(model.info().cache_bytes_per_token);
  }
  EXPECT_EQ(bytes[1], bytes[0] / 2);
  EXPECT_LT(bytes[3], bytes[1]);
  ModelOptions options;
  options.cache_type = DType::kQ8_0;
  EXPECT_THROW((void)Model::load(test::golden_path("hf/qwen3"), options), Error);
}

TEST(Bits, RealModels) {
  const char* directory = std::getenv("REGARD_MODELS");
  if (directory == nullptr) GTEST_SKIP() << "REGARD_MODELS is not set";
  for (const char* file : {"smollm2-135m-instruct-q4_1.gguf", "gemma3-270m-q4_k_m.gguf"}) {
    const std::filesystem::path path = std::filesystem::path(directory) / file;
    if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
    SCOPED_TRACE(file);
    ModelOptions options;
    options.context = 1024;
    compare_all(Model::load(path.string(), options), 530, {1, 2, 3, 8});
  }
}

TEST(Sequences, ForkAndTruncateLeaveTheOthersAlone) {
  ModelOptions options;
  options.context = 1024;
  const Model model = Model::load(test::golden_path("hf/llama"), options);
  const auto vocab = static_cast<size_t>(model.info().vocab_size);
  const std::vector<int32_t> ids = random_ids(model.info().vocab_size, 300, 5), other = random_ids(model.info().vocab_size, 40, 6);
  const auto feed = [&](Sequence& sequence, std::span<const int32_t> tokens) {
    std::vector<float> out(vocab);
    const Feed one{&sequence, tokens, Feed::Rows::kLast};
    model.forward({&one, 1}, {}, out.data());
    return out;
  };
  Sequence straight(model);
  const std::vector<float> want = feed(straight, ids);
  Sequence parent(model);
  feed(parent, std::span<const int32_t>(ids).first(270));
  Sequence child = parent.fork();
  feed(child, other);  // writes into what would be the parent's slots
  expect_same_bits(feed(parent, std::span<const int32_t>(ids).subspan(270)), want, "a fork's parent");
  child.truncate(270);
  EXPECT_EQ(child.size(), 270);
  expect_same_bits(feed(child, std::span<const int32_t>(ids).subspan(270)), want, "a truncated fork");
}

}  // namespace
}  // namespace regard
