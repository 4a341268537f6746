// Steps of training on models that other programs train too, one request at a time, so that compare_train.py can alternate between
// this library and its peers. Requests on standard input, one line of JSON for each on standard output:
//
//   save DIRECTORY MODEL SEQ           writes config.json and model.safetensors: baby, small, or the path of a model file
//   load DIRECTORY PRECISION THREADS   that model, and the ids of tokens.npy [batch, seq + 1]
//   run STEPS                          takes steps; says the seconds of one, and the losses before each
//
// A step is what `regard train` does: gradients set to zero, loss and gradients, their length, clipping, AdamW.
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <sstream>
#include <string>

#include "format/safetensors_writer.h"
#include "harness.h"
#include "model/trainable.h"
#include "nn/training/transformer.h"
#include "regard/error.h"
#include "regard/npy.h"
#include "train/model_config.h"
#include "train/optimizer.h"

namespace {

using namespace regard;

nn::TransformerConfig gpt(int64_t layers, int64_t heads, int64_t hidden, int64_t positions) {
  nn::TransformerConfig c;
  c.vocab_size = 65;  // characters of Shakespeare
  c.hidden_size = hidden;
  c.num_layers = layers;
  c.num_q_heads = heads;
  c.intermediate_size = 4 * hidden;
  c.max_positions = positions;
  return c;
}

void save(const std::string& directory, const std::string& name, int64_t seq) {
  std::optional<model::TrainableFile> file;
  nn::TransformerConfig shape;
  if (name == "baby") shape = gpt(6, 6, 384, seq);
  else if (name == "small") shape = gpt(4, 4, 128, seq);
  else shape = file.emplace(name).shape(seq);
  const std::unique_ptr<nn::TrainingModel> model = nn::make_transformer(shape, 1);
  if (file) file->read(model->parameters(), nullptr);
  std::vector<SafetensorsEntry> tensors;
  for (const nn::Parameter& p : model->parameters().parameters()) {
    const auto values = std::span<const float>(model->parameters().values()).subspan(static_cast<size_t>(p.offset), static_cast<size_t>(p.size));
    tensors.push_back({p.name, DType::kF32, p.shape, std::as_bytes(values)});
  }
  write_safetensors(directory + "/model.safetensors", tensors).value_or_throw();
  std::ofstream(directory + "/config.json") << (file ? file->config_json("float32") : train_loop::model_config_json(shape, {}));
}

struct Problem {
  int64_t batch = 0, seq = 0;
  std::vector<int32_t> tokens, labels;
  ThreadPool pool;
  std::unique_ptr<nn::TrainingModel> model;
  std::optional<train_loop::Optimizer> optimizer;
  TrainConfig::Optimizer config;
  double operations = 0;  // of a step
  int64_t done = 0;

  Problem(const std::string& directory, const std::string& precision, int threads) : pool(threads) {
    const NpyArray ids = load_npy(directory + "/tokens.npy");
    if (ids.shape.size() != 2) throw Error(Code::kInvalidArgument, "tokens.npy is not [batch, seq + 1]");
    batch = ids.shape[0];
    seq = ids.shape[1] - 1;
    const std::vector<float> numbers = ids.to_f32();  // exact: no vocabulary has 2^24 ids
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t t = 0; t < seq; ++t) {
        tokens.push_back(static_cast<int32_t>(numbers[static_cast<size_t>(b * (seq + 1) + t)]));
        labels.push_back(static_cast<int32_t>(numbers[static_cast<size_t>(b * (seq + 1) + t + 1)]));
      }
    const model::TrainableFile file(directory);
    nn::TransformerConfig shape = file.shape(seq);
    if (precision == "bf16") shape.precision = nn::training::GemmPrecision::kBF16;
    operations = nn::operations_per_token(shape, seq) * static_cast<double>(batch * seq);
    model = nn::make_transformer(shape, 1);
    file.read(model->parameters(), nullptr);
    optimizer.emplace(config, model->parameters());
  }

  double step() {
    constexpr double kRate = 1e-4;
    nn::TokenBatch data;
    data.batch = batch;
    data.seq = seq;
    data.tokens = tokens;
    data.labels = labels;
    model->parameters().zero_gradients();
    nn::TrainingStep training;
    training.loss_scale = 1 / static_cast<double>(batch * seq);
    const nn::LossSum loss = model->forward_backward(pool, data, training);
    const double norm = optimizer->gradient_norm(pool);
    optimizer->update(pool, ++done, kRate, norm > config.clip_norm ? config.clip_norm / norm : 1);
    return loss.nats / static_cast<double>(loss.counted);
  }
};

}  // namespace

int main() {
  try {
    bench::say_who(bench::measure_ceilings());
    std::optional<Problem> problem;
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string request, directory, name;
      words >> request;
      int64_t number = 0;
      std::ostringstream answer;
      answer.precision(12);
      if (request == "save" && words >> directory >> name >> number) {
        save(directory, name, number);
        answer << "{\"saved\": true}";
      } else if (request == "load" && words >> directory >> name >> number) {
        problem.reset();  // two of them would not fit everywhere
        problem.emplace(directory, name, static_cast<int>(number));
        answer << "{\"operations\": " << problem->operations << "}";
      } else if (request == "run" && problem && words >> number) {
        const auto begin = std::chrono::steady_clock::now();
        std::ostringstream losses;
        losses.precision(12);
        for (int64_t i = 0; i < number; ++i) losses << (i > 0 ? ", " : "") << problem->step();
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        answer << "{\"seconds\": " << seconds / static_cast<double>(number) << ", \"losses\": [" << losses.str() << "]}";
      } else {
        throw Error(Code::kInvalidArgument, "expected save, load or run, got '" + line + "'");
      }
      bench::say(answer.str());
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "train_serve_bench: %s\n", error.what());
    return 1;
  }
}
