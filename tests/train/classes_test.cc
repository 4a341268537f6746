// Models that tell classes apart: trained on JSON lines, opened again with the trainer's bits, and what each refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include "model/trained_shape.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "regard/tokenizer_training.h"
#include "regard/train.h"
#include "runtime/thread_pool.h"
#include "support/trained_checkpoint.h"
#include "train/class_data.h"

namespace regard::train_test {
namespace {

using nn::Transformer;
using nn::TransformerConfig;
using testing_support::randomise;
using testing_support::save;
using testing_support::TempDir;

void expect_refused(const std::function<void()>& call, Code code, std::string_view part) {
  try {
    call();
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
  }
}

TransformerConfig shape(nn::Architecture architecture) {
  TransformerConfig c;
  c.architecture = architecture;
  c.vocab_size = 37;
  c.hidden_size = 24;
  c.num_layers = 2;
  c.num_q_heads = 3;
  c.intermediate_size = 40;
  c.max_positions = 300;
  c.num_classes = 5;
  return c;
}

// Two texts in one padded batch, longer than a tile of keys and shorter than one.
TEST(ClassCheckpoint, HasTheLogitsOfTheTrainer) {
  constexpr int64_t kLong = 270, kShort = 19;
  for (const auto architecture : {nn::Architecture::kEncoder, nn::Architecture::kDecoder}) {
    Transformer<float> trained(shape(architecture), 1);
    randomise(trained);
    const TempDir directory;
    save(trained, directory);
    std::vector<int32_t> tokens(2 * kLong, 0);
    for (size_t i = 0; i < kLong + kShort; ++i) tokens[i] = static_cast<int32_t>(random_bits(5, 0, i) % 37);
    const std::vector<int64_t> lengths{kLong, kShort};
    nn::TokenBatch batch;
    batch.batch = 2;
    batch.seq = kLong;
    batch.tokens = tokens;
    batch.lengths = lengths;
    std::vector<float> wanted(2 * kLong * 5);
    ThreadPool pool(2);
    trained.logits(pool, batch, wanted);
    ASSERT_NE(std::memcmp(wanted.data(), wanted.data() + 5, 5 * sizeof(float)), 0);

    const Model model = Model::load(directory.path());
    EXPECT_EQ(model.info().num_classes, 5);
    EXPECT_TRUE(model.info().class_names.empty());
    EXPECT_EQ(Model::describe(directory.path()).num_classes, 5);
    for (const int64_t row : {0, 1}) {
      const auto length = static_cast<size_t>(lengths[static_cast<size_t>(row)]);
      const std::span<const int32_t> text = std::span(tokens).subspan(static_cast<size_t>(row * kLong), length);
      const float* of_trainer = wanted.data() + row * kLong * 5;
      std::vector<float> rows(length * 5), one(5);
      model.classify(text, ClassesOf::kTokens, rows.data());
      EXPECT_EQ(std::memcmp(rows.data(), of_trainer, rows.size() * sizeof(float)), 0) << rows[0] << ", trainer: " << of_trainer[0];
      model.classify(text, ClassesOf::kText, one.data());
      const size_t place = architecture == nn::Architecture::kEncoder ? 0 : length - 1;
      EXPECT_EQ(std::memcmp(one.data(), of_trainer + place * 5, 5 * sizeof(float)), 0);
    }

    std::vector<float> out(64 * 37);
    const std::vector<int32_t> wrong{37}, none, text{1, 2};
    expect_refused([&] { model.classify(wrong, ClassesOf::kText, out.data()); }, Code::kInvalidArgument, "37");
    expect_refused([&] { model.classify(none, ClassesOf::kText, out.data()); }, Code::kInvalidArgument, "0 tokens");
    if (architecture == nn::Architecture::kEncoder) {
      expect_refused([&] { model.encode(text, {}, out.data()); }, Code::kUnsupported, "classify()");
      model.encode(text, {Output::kHidden}, out.data());
    } else {
      Sequence sequence(model);
      const Feed feed{&sequence, text, Feed::Rows::kLast};
      expect_refused([&] { model.forward({&feed, 1}, {}, out.data()); }, Code::kUnsupported, "classify()");
    }
  }
}

TEST(ClassCheckpoint, RefusesWhatDoesNotFit) {
  const auto names = [](const std::string& id2label) { return model::read_class_names("{\"id2label\": " + id2label + "}", 2); };
  EXPECT_EQ(names(R"({"1": "yes", "0": "no"})").value_or_throw(), (std::vector<std::string>{"no", "yes"}));
  EXPECT_TRUE(names("null").value_or_throw().empty());
  for (const char* wrong : {R"({"0": "no"})", R"({"0": "no", "2": "yes"})", R"({"0": "no", "00": "yes"})", R"({"0": "no", "1": 1})", R"({"0": "no", "1x": "yes"})", "[]"})
    EXPECT_FALSE(names(wrong)) << wrong;

  Transformer<float> both([] {
    TransformerConfig c = shape(nn::Architecture::kEncoderDecoder);
    c.num_encoder_layers = 1;
    return c;
  }(), 1);
  const TempDir directory;
  save(both, directory);
  expect_refused([&] { (void)Model::load(directory.path()); }, Code::kUnsupported, "num_classes");

  Transformer<float> words([] {
    TransformerConfig c = shape(nn::Architecture::kEncoder);
    c.num_classes = 0;
    return c;
  }(), 1);
  const TempDir plain;
  save(words, plain);
  const std::vector<int32_t> text{1, 2};
  std::vector<float> out(16);
  expect_refused([&] { Model::load(plain.path()).classify(text, ClassesOf::kText, out.data()); }, Code::kUnsupported, "no classes");
}

// What a text is about is the more frequent one of two letters; its beginning says nothing.
std::string letters(uint64_t seed, int count) {
  std::string lines;
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
    std::string text;
    int a = 0;
    const uint64_t length = 5 + 2 * (random_bits(seed, i, 0) % 4);
    for (uint64_t t = 0; t < length; ++t) {
      const bool is_a = random_bits(seed, i, 1 + t) % 2 == 0;
      a += is_a ? 1 : 0;
      text += is_a ? 'a' : 'b';
    }
    lines += "{\"text\": \"" + text + "\", \"label\": \"" + (2 * a > static_cast<int>(length) ? "more a" : "fewer a") + "\"}\n";
  }
  return lines;
}

TrainConfig class_config(const TempDir& directory, std::string_view architecture) {
  const std::vector<std::string> texts{"ab"};
  std::ofstream(directory.path("tokenizer.json")) << train_tokenizer(texts, {}).json;
  std::ofstream(directory.path("texts.jsonl")) << letters(1, 600);
  TrainConfig config;
  for (const char* field : {"data.objective=class", "model.type=regard", "model.layers=1", "model.hidden_size=16", "model.heads=2", "run.sequence=12", "run.batch=16",
                                   "run.steps=150", "run.evaluate_every=0", "run.save_every=0", "optimizer.learning_rate=0.01", "schedule.warmup_steps=10"})
    set_train_field(config, field);
  set_train_field(config, "model.architecture=" + std::string(architecture));
  config.data.files = {directory.path("texts.jsonl")};
  config.data.tokenizer = directory.path("tokenizer.json");
  return config;
}

TEST(ClassRun, LearnsAndIsReadAgain) {
  for (const char* architecture : {"encoder", "decoder"}) {
    const TempDir directory;
    const TrainConfig config = class_config(directory, architecture);
    TrainOptions options;
    options.directory = directory.path("run");
    TrainEvent evaluation;
    options.on_event = [&](const TrainEvent& event) {
      if (event.kind == TrainEvent::Kind::kEvaluation) evaluation = event;
    };
    train(config, options);
    EXPECT_EQ(evaluation.questions, 60);
    EXPECT_GT(evaluation.accuracy, 0.8);  // guessing gives half

    const TaskScore score = evaluate_task(options.directory);
    EXPECT_EQ(score.task, "class");
    EXPECT_EQ(score.loss, evaluation.loss);
    EXPECT_EQ(score.correct, evaluation.solved);
    EXPECT_EQ(score.questions, 60);

    // The same texts one by one, and other ones.
    const Model model = Model::load(score.checkpoint);
    EXPECT_EQ(model.info().class_names, (std::vector<std::string>{"fewer a", "more a"}));
    const train_data::ClassTexts texts = train_data::load_class_data(config, model.tokenizer()).validation;
    int64_t correct = 0;
    double nats = 0;
    for (size_t i = 0; i < 60; ++i) {
      const auto begin = static_cast<size_t>(texts.starts[i]), end = static_cast<size_t>(texts.starts[i + 1]);
      float logits[2];
      model.classify(std::span(texts.ids).subspan(begin, end - begin), ClassesOf::kText, logits);
      const int32_t wanted = texts.classes[i];
      correct += logits[wanted] > logits[1 - wanted] ? 1 : 0;
      nats += std::log1p(std::exp(static_cast<double>(logits[1 - wanted]) - static_cast<double>(logits[wanted])));
    }
    EXPECT_EQ(correct, score.correct);
    EXPECT_NEAR(nats / 60, score.loss, 1e-6);
    std::ofstream(directory.path("other.jsonl")) << letters(2, 40);
    TaskEvalOptions others;
    others.files = {directory.path("other.jsonl")};
    EXPECT_EQ(evaluate_task(options.directory, others).questions, 40);
    std::ofstream(directory.path("other.jsonl")) << R"({"text": "ab", "label": "as many"})";
    expect_refused([&] { evaluate_task(options.directory, others); }, Code::kInvalidArgument, "as many");

    TrainConfig on = config;
    on.data.objective = TrainConfig::Data::Objective::kMaskedToken;
    on.run.init = score.checkpoint;
    TrainOptions elsewhere;
    elsewhere.directory = directory.path("on");
    expect_refused([&] { train(on, elsewhere); }, Code::kUnsupported, "tells classes apart");
  }
}

TEST(ClassRun, NamesWhatIsWrong) {
  const TempDir directory;
  const TrainConfig right = class_config(directory, "encoder");
  TrainOptions options;
  options.directory = directory.path("run");
  const auto refused = [&](std::string_view field, std::string_view lines, Code code, std::string_view part) {
    TrainConfig config = right;
    if (!field.empty()) set_train_field(config, field);
    if (!lines.empty()) std::ofstream(directory.path("texts.jsonl")) << lines;
    expect_refused([&] { train(config, options); }, code, part);
  };
  refused("model.type=gpt2", "", Code::kInvalidArgument, "model.type to regard");
  refused("model.architecture=encoder_decoder", "", Code::kInvalidArgument, "encoder_decoder");
  refused("data.suffix=.", "", Code::kInvalidArgument, "data.suffix");
  refused("data.tokenizer=", "", Code::kInvalidArgument, "data.tokenizer");
  refused("data.label=kind", "", Code::kCorruptData, "kind");
  refused("data.files=" + directory.path("tokenizer.json"), "", Code::kInvalidArgument, "JSON lines");
  refused("", R"({"text": "ab", "label": "a"})", Code::kInvalidArgument, "of 1 classes");
  refused("", "{\"text\": \"ab\", \"label\": 1}\n{\"text\": \"\", \"label\": 0}", Code::kInvalidArgument, "texts.jsonl:2");
  refused("", R"({"text": "ab", "label": 1.5})", Code::kCorruptData, "label");
}

// Numbers by their size, so that classes which are 0, 1, 2 keep their numbers; each text once in an epoch; no more than the sequence.
TEST(ClassData, NumbersClassesAndShuffles) {
  const TempDir directory;
  TrainConfig config = class_config(directory, "decoder");
  std::string lines;
  for (int i = 0; i < 12; ++i) lines += "{\"text\": \"" + std::string(static_cast<size_t>(i + 3), i % 2 == 0 ? 'a' : 'b') + "\", \"label\": " + std::to_string(i) + "}\n\n";
  std::ofstream(directory.path("texts.jsonl")) << lines;
  config.data.validation_fraction = 0.25;
  const Tokenizer tokenizer = Tokenizer::from_file(config.data.tokenizer);
  train_data::ClassData data = train_data::load_class_data(config, tokenizer);
  EXPECT_EQ(data.names[2], "2");
  EXPECT_EQ(data.names[10], "10");
  EXPECT_EQ(data.training.size(), 9);
  EXPECT_EQ(data.validation.classes, (std::vector<int32_t>{9, 10, 11}));
  const uint64_t hash = data.hash();
  std::swap(data.names[0], data.names[1]);
  EXPECT_NE(data.hash(), hash);

  using train_data::ClassBatches;
  train_data::Batch batch;
  for (const auto at : {ClassBatches::LabelAt::kFirst, ClassBatches::LabelAt::kLast}) {
    const ClassBatches shuffled(data.training, 12, at, ClassBatches::Order::kShuffled, 3);
    shuffled.fill(9, 9, batch);
    std::vector<int32_t> seen;
    for (size_t row = 0; row < 9; ++row) {
      const auto length = static_cast<size_t>(batch.lengths[row]);
      const size_t place = row * 12 + (at == ClassBatches::LabelAt::kFirst ? 0 : length - 1);
      seen.push_back(batch.labels[place]);
      EXPECT_EQ(length, std::min<size_t>(static_cast<size_t>(batch.labels[place]) + 3, 12));
    }
    EXPECT_EQ(batch.counted(), 9);
    EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(seen, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  }
}

}  // namespace
}  // namespace regard::train_test
