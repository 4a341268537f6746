// Runs that begin from a model file: what the configuration may say beside it, and that such a run goes on without the file.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "../support/temp_dir.h"
#include "regard/convert.h"
#include "regard/error.h"
#include "regard/model.h"
#include "regard/tokenizer.h"
#include "regard/tokenizer_training.h"
#include "regard/train.h"
#include "support/golden.h"
#include "support/plain_gguf.h"

namespace regard::train_test {
namespace {

namespace fs = std::filesystem;
using testing_support::TempDir;

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

// Few steps on a text that the file's own tokenizer reads.
TrainConfig tuning(const std::string& init, const std::string& text) {
  TrainConfig config;
  config.run.init = init;
  config.data.files = {text};
  config.data.validation_fraction = 0;
  config.run.steps = 6;
  config.run.batch = 2;
  config.run.sequence = 16;
  config.run.save_every = 0;
  config.schedule.warmup_steps = 2;
  return config;
}

std::string text_in(const TempDir& directory) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += "The river runs down to the sea, and the sea is not full. ";
  return directory.write("text.txt", text);
}

TrainResult run(const TrainConfig& config, const std::string& directory, TrainStart start = TrainStart::kNew, int64_t stop_at = -1) {
  StopToken stop;
  TrainOptions options;
  options.directory = directory;
  options.start = start;
  options.stop = &stop;
  options.on_event = [&](const TrainEvent& event) {
    if (event.kind == TrainEvent::Kind::kStep && event.step == stop_at) stop.request_stop();
  };
  return train(config, options);
}

std::string message_of(const TrainConfig& config, Code code = Code::kInvalidArgument) {
  const TempDir directory;
  try {
    run(config, directory.path("run"));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "nothing was refused";
}

TEST(Init, BeginsWithTheFileAndWritesItsFamily) {
  const TempDir directory;
  TrainConfig config = tuning(test::golden_path("gguf/qwen2_q5_0.gguf"), text_in(directory));
  config.run.steps = 0;  // nothing but the first checkpoint
  const TrainResult result = run(config, directory.path("run"));
  const Model file = Model::load(config.run.init), checkpoint = Model::load(result.checkpoint);
  EXPECT_EQ(checkpoint.info().family, "qwen2");
  EXPECT_NE(bytes_of(result.checkpoint + "/config.json").find("\"Qwen2ForCausalLM\""), std::string::npos);
  const std::string text = "The sea is not full, 1984";
  const std::vector<int32_t> ids = file.tokenizer().encode(text);
  EXPECT_EQ(checkpoint.tokenizer().encode(text), ids);
  EXPECT_EQ(checkpoint.tokenizer().eos(), file.tokenizer().eos());
  std::vector<float> want(static_cast<size_t>(file.info().vocab_size)), got(want.size());
  for (const auto& [model, logits] : {std::pair{&file, &want}, std::pair{&checkpoint, &got}}) {
    Sequence sequence(*model);
    const Feed feed{&sequence, ids, Feed::Rows::kLast};
    model->forward({&feed, 1}, {}, logits->data());
  }
  EXPECT_EQ(got, want);  // half-split in both files: the same order of sums
}

TEST(Init, LearnsFromThere) {
  const TempDir directory;
  TrainConfig config = tuning(test::golden_path("gguf/qwen2_q5_0.gguf"), text_in(directory));
  config.run.steps = 40;
  config.optimizer.learning_rate = 0.01;
  double first = 0, last = 0;
  TrainOptions options;
  options.directory = directory.path("run");
  options.on_event = [&](const TrainEvent& event) {
    if (event.kind != TrainEvent::Kind::kStep) return;
    if (event.step == 1) first = event.loss;
    last = event.loss;
    EXPECT_GT(event.peak_share, 0);
    EXPECT_LT(event.peak_share, 1.5);
  };
  train(config, options);
  EXPECT_LT(last, 0.7 * first);
}

// The bits of a run that was stopped and went on when the file was gone, by its configuration or by what the directory says of it.
TEST(Init, GoesOnWithoutTheFile) {
  const TempDir directory;
  const std::string text = text_in(directory);
  const std::string copy = directory.path("model.gguf");
  for (const bool whole_config : {false, true}) {
    fs::copy_file(test::golden_path("gguf/qwen2_q5_0.gguf"), copy);
    TrainConfig config = tuning(copy, text);
    config.model.residual_dropout = 0.1;
    const std::string whole = directory.path(whole_config ? "whole2" : "whole"), parts = directory.path(whole_config ? "parts2" : "parts");
    run(config, whole);
    EXPECT_EQ(run(config, parts, TrainStart::kNew, 3).step, 3);
    fs::remove(copy);
    if (whole_config) config = parse_train_config(bytes_of(parts + "/train.json"), "train.json");
    else config.run.init.clear();
    EXPECT_EQ(run(config, parts, TrainStart::kResume, 4).step, 4);
    EXPECT_EQ(run(config, parts, TrainStart::kResume).end, TrainEnd::kComplete);
    EXPECT_EQ(bytes_of(parts + "/latest/model.safetensors"), bytes_of(whole + "/latest/model.safetensors"));
    EXPECT_EQ(bytes_of(parts + "/latest/config.json"), bytes_of(whole + "/latest/config.json"));
  }
}

TEST(Init, RefusesAShapeThatIsNotTheFiles) {
  const TempDir directory;
  const TrainConfig config = tuning(test::golden_path("gguf/qwen2_q5_0.gguf"), text_in(directory));
  const auto refused = [&](const char* assignment, std::initializer_list<std::string_view> parts) {
    TrainConfig other = config;
    set_train_field(other, assignment);
    const std::string message = message_of(other);
    for (const std::string_view part : parts) EXPECT_NE(message.find(part), std::string::npos) << assignment << ": " << message;
  };
  refused("model.hidden_size=48", {"model.hidden_size is '48'", "qwen2_q5_0.gguf", "leave it out"});
  refused("model.hidden_size=128", {"model.hidden_size is '128'"});  // the default, but it was said
  refused("model.type=gpt2", {"model.type is 'gpt2'", "'llama'"});
  refused("model.norm=layer_norm", {"model.norm is 'layer_norm'", "'rms_norm'"});
  refused("model.mask=causal & window(3, 0)", {"model.mask", "'causal'"});
  refused("model.norm_epsilon=0.5", {"model.norm_epsilon is '0.5'"});
  refused("run.sequence=600", {"run.sequence is 600", "512 positions"});
  refused("data.objective=masked_token", {"vocabulary"});
  TrainConfig agreeing = config;
  set_train_field(agreeing, "model.type=llama");
  set_train_field(agreeing, "model.vocab_size=0");
  set_train_field(agreeing, "model.attention_dropout=0.1");
  agreeing.run.steps = 1;
  EXPECT_EQ(run(agreeing, directory.path("agrees")).step, 1);
}

TEST(Init, TakesATokenizerOnlyWithTheSamePieces) {
  const TempDir directory;
  TrainConfig config = tuning(test::golden_path("gguf/qwen2_q5_0.gguf"), text_in(directory));
  config.run.steps = 0;
  const TrainResult first = run(config, directory.path("first"));
  config.data.tokenizer = first.checkpoint + "/tokenizer.json";
  const TrainResult second = run(config, directory.path("second"));
  EXPECT_EQ(bytes_of(second.checkpoint + "/tokenizer.json"), bytes_of(first.checkpoint + "/tokenizer.json"));
  config.data.tokenizer = test::golden_path("trained/bytes.json");
  EXPECT_NE(message_of(config).find("data.tokenizer"), std::string::npos);
}

TEST(Init, ACharacterModelComesWithItsTokenizer) {
  const TempDir directory;
  const std::string box = std::string(REGARD_TEST_DATA) + "/../models/shakespeare";
  convert_model(box, directory.path("characters.gguf"));
  TrainConfig config = tuning(directory.path("characters.gguf"), text_in(directory));
  config.run.steps = 0;
  const Model original = Model::load(box), begun = Model::load(run(config, directory.path("run")).checkpoint);
  EXPECT_EQ(begun.info().vocab_size, original.info().vocab_size);
  EXPECT_EQ(begun.tokenizer().encode("What say you?\n"), original.tokenizer().encode("What say you?\n"));
  EXPECT_EQ(begun.info().num_parameters, original.info().num_parameters);
}

// A file of characters without our keys: U+2581 for a space, and bytes behind the characters.
TEST(Init, TakesTheCharactersThatAScoredVocabularyWasMadeFrom) {
  const TempDir directory;
  const std::string box = std::string(REGARD_TEST_DATA) + "/../models/shakespeare", file = directory.path("plain.gguf");
  convert_model(box, directory.path("characters.gguf"));
  testing_support::copy_without_own_keys(directory.path("characters.gguf"), file);
  TrainConfig config = tuning(file, text_in(directory));
  config.run.steps = 2;
  const std::string without = message_of(config, Code::kUnsupported);
  EXPECT_NE(without.find("give data.tokenizer, the tokenizer.json that the file was made from"), std::string::npos) << without;
  config.data.tokenizer = test::golden_path("trained/bytes.json");
  const std::string other = message_of(config);
  EXPECT_NE(other.find("give the tokenizer.json that this file was made from"), std::string::npos) << other;
  EXPECT_EQ(other.find("leave it out"), std::string::npos) << other;
  // One that has '_' for the space: the message shows U+2581 as it is.
  std::string wrong = bytes_of(box + "/tokenizer.json");
  wrong.replace(wrong.find("\" \": 1"), 6, "\"_\": 1");
  config.data.tokenizer = directory.write("wrong.json", wrong);
  const std::string shown = message_of(config);
  EXPECT_NE(shown.find("'_' as id 1"), std::string::npos) << shown;
  EXPECT_NE(shown.find("has '\xE2\x96\x81'"), std::string::npos) << shown;
  // Special tokens behind the model's ids are left out, so that the checkpoint opens; other tokens are not.
  const auto with_a_token_behind = [&](bool special) {
    std::string json = bytes_of(box + "/tokenizer.json");
    const std::string nothing = "\"added_tokens\": []";
    const std::string token = std::string(R"("added_tokens": [{"id": 5000, "content": "<image>", "normalized": false, "lstrip": false, "rstrip": false,)") +
                              R"( "single_word": false, "special": )" + (special ? "true}]" : "false}]");
    return json.replace(json.find(nothing), nothing.size(), token);
  };
  config.data.tokenizer = directory.write("behind.json", with_a_token_behind(false));
  const std::string behind = message_of(config);
  EXPECT_NE(behind.find("has 5001 ids, and the model"), std::string::npos) << behind;
  config.data.tokenizer = directory.write("pictures.json", with_a_token_behind(true));
  EXPECT_EQ(bytes_of(run(config, directory.path("pictures")).checkpoint + "/tokenizer.json"), bytes_of(box + "/tokenizer.json"));
  config.data.tokenizer = box + "/tokenizer.json";
  const std::string checkpoint = run(config, directory.path("run")).checkpoint;
  EXPECT_EQ(bytes_of(checkpoint + "/tokenizer.json"), bytes_of(box + "/tokenizer.json"));
  EXPECT_EQ(bytes_of(checkpoint + "/tokenizer_config.json"), bytes_of(box + "/tokenizer_config.json"));
  EXPECT_EQ(Model::load(checkpoint).info().vocab_size, Model::load(file).info().vocab_size);
}

// A model that begins from a checkpoint is the one that was measured there, also one with an encoder: taken as a decoder it would see other keys.
TEST(Init, KeepsTheArchitectureOfTheFile) {
  const TempDir directory;
  const std::string text = text_in(directory);
  const std::string texts[] = {bytes_of(text)};
  directory.write("chars.json", train_tokenizer(texts, {}).json);
  using Architecture = TrainConfig::Model::Architecture;
  for (const std::string task : {"pig-latin", "reverse", "masked"}) {
    SCOPED_TRACE(task);
    TrainConfig first;
    if (task == "masked") {
      first.data.files = {text};
      first.data.tokenizer = directory.path("chars.json");
      first.data.objective = TrainConfig::Data::Objective::kMaskedToken;
      first.run.sequence = 16;
    } else {
      first.data.task = task;
    }
    first.run.steps = 20;
    first.run.batch = 8;
    first.schedule.warmup_steps = 1;
    TrainConfig again = first;
    first.model.type = TrainConfig::Model::Type::kRegard;
    first.model.architecture = task == "pig-latin" ? Architecture::kEncoderDecoder : Architecture::kEncoder;
    first.model.hidden_size = 16;
    first.model.layers = 1;
    first.model.encoder_layers = 1;
    first.model.heads = 2;
    first.optimizer.learning_rate = 0.01;
    const TrainResult trained = run(first, directory.path(task));
    again.run.init = trained.checkpoint;
    again.run.steps = 1;
    again.optimizer.learning_rate = 0;
    EXPECT_EQ(run(again, directory.path(task + "-on")).validation_loss, trained.validation_loss);
    // It goes on from its own checkpoint.
    EXPECT_EQ(run(again, directory.path(task + "-on"), TrainStart::kResume).step, 1);
    TrainConfig other = again;
    set_train_field(other, "model.architecture=decoder");
    EXPECT_NE(message_of(other).find("model.architecture is 'decoder'"), std::string::npos);
    if (task == "masked") continue;
    TrainConfig copy = again;
    copy.data.task = "copy";
    EXPECT_NE(message_of(copy).find("model.architecture"), std::string::npos);
  }
}

// The texts that transformers writes greedily (tools/golden/t5.py), from a checkpoint that nothing was learned for.
TEST(Init, KeepsT5AsT5) {
  for (const std::string name : {"t5", "t5_gated"}) {
    SCOPED_TRACE(name);
    const TempDir directory;
    TrainConfig config;
    config.run.init = test::golden_path("hf/" + name);
    config.data.task = "pig-latin";
    config.run.steps = 0;
    config.run.batch = 8;
    config.schedule.warmup_steps = 1;
    const Model checkpoint = Model::load(run(config, directory.path("first")).checkpoint);
    EXPECT_EQ(checkpoint.info().family, "t5");
    EXPECT_EQ(checkpoint.decoder_start(), 1) << "what the task begins with";
    const nlohmann::json cases = test::read_json("t5/cases.json");
    size_t texts = 0;
    for (const auto& c : cases) {
      if (c["model"] != name || c["beams"] != 1) continue;
      Sequence sequence(checkpoint, c["source"].get<std::vector<int32_t>>());
      std::vector<float> logits(static_cast<size_t>(checkpoint.info().vocab_size));
      int32_t last = 0;  // what the file's own texts begin with
      for (const int32_t wanted : c["sequences"][0].get<std::vector<int32_t>>()) {
        const Feed feed{&sequence, {&last, 1}, Feed::Rows::kLast};
        checkpoint.forward({&feed, 1}, {}, logits.data());
        last = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
        ASSERT_EQ(last, wanted);
      }
      ++texts;
    }
    EXPECT_EQ(texts, 1u);

    config.run.steps = 40;
    config.optimizer.learning_rate = 0.01;
    double first = 0, last = 0;
    TrainOptions options;
    options.directory = directory.path("run");
    options.on_event = [&](const TrainEvent& event) {
      if (event.kind != TrainEvent::Kind::kStep) return;
      if (event.step == 1) first = event.loss;
      last = event.loss;
    };
    const TrainResult trained = train(config, options);
    EXPECT_LT(last, 0.8 * first);
    // It goes on from its own checkpoint, and so does a new run.
    EXPECT_EQ(run(config, options.directory, TrainStart::kResume).step, 40);
    config.run.init = trained.checkpoint;
    config.run.steps = 1;
    config.optimizer.learning_rate = 0;
    EXPECT_EQ(run(config, directory.path("again")).validation_loss, trained.validation_loss);
  }
}

TEST(Tasks, WithoutAQuestionToMeasureOnAreRefusedBeforeTheFirstStep) {
  TrainConfig config;
  config.data.task = "brackets";
  config.data.task_length = 1;
  const TempDir directory;
  try {
    run(config, directory.path("run"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    EXPECT_NE(std::string(error.what()).find("data.task_length"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(fs::exists(directory.path("run")));
}

TEST(ModelFields, AreNamedAsTheyAreWritten) {
  TrainConfig config;
  config.data.task = "copy";
  const auto expect = [&](std::initializer_list<const char*> fields, const char* part) {
    TrainConfig other = config;
    for (const char* field : fields) set_train_field(other, field);
    const std::string message = message_of(other);
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect({"model.type=regard", "model.head_size=4096"}, "model.head_size is 4096");
  expect({"model.hidden_size=30"}, "model.hidden_size 30 cannot be cut");
  expect({"model.type=llama", "model.kv_heads=3"}, "model.heads is 4, which cannot share model.kv_heads, 3, evenly");
  expect({"model.type=regard", "model.mask=casual"}, "model.mask");
  expect({"model.type=regard", "model.mask=per_head(causal, causal, causal)"}, "model.mask");
}

}  // namespace
}  // namespace regard::train_test
