// config.json as transformers writes it (the checkpoints below tests/golden/hf), and the configurations that must be refused.
#include "format/hf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/files.h"

namespace regard {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_support::test_data;

HfConfig golden(const std::string& directory, const std::string& file = "config.json") {
  auto config = read_hf_config(test_data("golden/hf/" + directory + "/" + file), test_data("golden/hf/" + directory + "/generation_config.json"));
  EXPECT_TRUE(config) << config.failure().message;
  return *config;
}

/// The refusal of {"model_type":"llama", fields...}.
std::string why(const std::string& fields) {
  const auto config = read_hf_config("{\"model_type\":\"llama\"," + fields + "}");
  return config ? "accepted" : config.failure().message;
}

TEST(HfConfig, LlamaInBothSpellings) {
  const HfConfig c = golden("llama");
  EXPECT_EQ(c.model_type, "llama");
  EXPECT_THAT(c.architectures, ElementsAre("LlamaForCausalLM"));
  EXPECT_EQ(c.dtype, "bfloat16");
  EXPECT_EQ(c.hidden_size, 32);
  EXPECT_EQ(c.num_layers, 2);
  EXPECT_EQ(c.num_q_heads, 4);
  EXPECT_EQ(c.num_kv_heads, 2);
  EXPECT_EQ(c.head_dim, 8);
  EXPECT_EQ(c.ffn_size, 48);
  EXPECT_EQ(c.vocab_size, 96);
  EXPECT_EQ(c.context, 256);
  EXPECT_EQ(c.norm_eps, 1e-5);
  EXPECT_EQ(c.activation, "silu");
  EXPECT_EQ(c.tie_word_embeddings, true);
  EXPECT_EQ(c.attention_bias, false);
  EXPECT_EQ(c.mlp_bias, false);
  EXPECT_EQ(c.bos_id, 1);
  EXPECT_EQ(c.pad_id, std::nullopt);
  EXPECT_THAT(c.eos_ids, ElementsAre(2));
  ASSERT_TRUE(c.rope.has_value());
  EXPECT_EQ(c.rope->type, "llama3");
  EXPECT_EQ(c.rope->theta, 500.0);
  EXPECT_EQ(c.rope->factor, 8.0);
  EXPECT_EQ(c.rope->low_freq_factor, 1.0);
  EXPECT_EQ(c.rope->high_freq_factor, 4.0);
  EXPECT_EQ(c.rope->original_context, 32);
  EXPECT_EQ(golden("llama", "config.v4.json").rope, c.rope);
  EXPECT_EQ(golden("llama", "config.v4.json").dtype, "bfloat16");
}

TEST(HfConfig, Gemma3InBothSpellings) {
  const HfConfig c = golden("gemma3"), older = golden("gemma3", "config.v4.json");
  EXPECT_EQ(c.model_type, "gemma3_text");
  EXPECT_EQ(c.activation, "gelu_pytorch_tanh");
  EXPECT_EQ(c.query_pre_attn_scalar, 24.0);
  EXPECT_EQ(c.sliding_window, 8);
  EXPECT_EQ(c.sliding_window_pattern, 6);
  EXPECT_EQ(c.attn_softcap, std::nullopt);
  EXPECT_THAT(c.eos_ids, ElementsAre(2, 5));
  EXPECT_EQ(c.use_bidirectional_attention, false);
  ASSERT_EQ(c.layer_types.size(), 7u);
  EXPECT_EQ(c.layer_types[5], "full_attention");
  EXPECT_EQ(c.layer_types[6], "sliding_attention");
  EXPECT_FALSE(c.rope.has_value());
  ASSERT_EQ(c.rope_by_layer_type.size(), 2u);
  EXPECT_EQ(c.rope_by_layer_type[0].first, "full_attention");
  EXPECT_EQ(c.rope_by_layer_type[0].second, *older.rope);
  EXPECT_EQ(older.rope->type, "linear");
  EXPECT_EQ(older.rope->factor, 4.0);
  EXPECT_EQ(older.rope->theta, 2000.0);
  EXPECT_EQ(c.rope_by_layer_type[1].second.theta, 100.0);
  EXPECT_EQ(c.rope_by_layer_type[1].second.type, "default");
  EXPECT_EQ(older.local_rope_theta, 100.0);
  EXPECT_EQ(older.sliding_window_pattern, 6);
  EXPECT_TRUE(older.layer_types.empty());
}

TEST(HfConfig, TheOtherCheckpoints) {
  EXPECT_EQ(golden("llama_linear").rope->type, "linear");
  EXPECT_EQ(golden("llama_linear").attention_bias, true);
  EXPECT_EQ(golden("llama_dynamic").rope->type, "dynamic");
  const HfConfig yarn = golden("llama_yarn");
  EXPECT_EQ(yarn.rope->type, "yarn");
  EXPECT_EQ(yarn.rope->beta_fast, 4.0);
  EXPECT_EQ(yarn.rope->beta_slow, 1.0);
  const HfConfig longrope = golden("llama_longrope");
  EXPECT_EQ(longrope.rope->type, "longrope");
  EXPECT_THAT(longrope.rope->short_factor, ElementsAre(1.0, 1.25, 1.5, 1.75));
  EXPECT_THAT(longrope.rope->long_factor, ElementsAre(1.5, 2.5, 4.0, 8.0));
  const HfConfig qwen2 = golden("qwen2");
  EXPECT_EQ(qwen2.head_dim, std::nullopt);
  EXPECT_EQ(qwen2.use_sliding_window, true);
  EXPECT_EQ(qwen2.max_window_layers, 2);
  EXPECT_THAT(qwen2.layer_types, ElementsAre("full_attention", "full_attention", "sliding_attention", "sliding_attention"));
  const HfConfig qwen3 = golden("qwen3");
  EXPECT_EQ(qwen3.sliding_window, std::nullopt);
  EXPECT_EQ(qwen3.head_dim, 16);
  EXPECT_EQ(golden("mistral").sliding_window, 8);
  const HfConfig starcoder2 = golden("starcoder2");
  EXPECT_EQ(starcoder2.norm_eps, 1e-5);
  EXPECT_EQ(starcoder2.use_bias, true);
}

TEST(HfConfig, OtherSpellings) {
  const auto gpt2 = read_hf_config(R"({"model_type":"gpt2","n_embd":768,"n_head":12,"n_layer":12,"n_positions":1024,"n_inner":null,
    "layer_norm_epsilon":1e-5,"activation_function":"gelu_new","bos_token_id":50256,"eos_token_id":50256,"vocab_size":50257})");
  ASSERT_TRUE(gpt2) << gpt2.failure().message;
  EXPECT_EQ(gpt2->hidden_size, 768);
  EXPECT_EQ(gpt2->num_q_heads, 12);
  EXPECT_EQ(gpt2->num_layers, 12);
  EXPECT_EQ(gpt2->context, 1024);
  EXPECT_EQ(gpt2->ffn_size, std::nullopt);
  EXPECT_EQ(gpt2->norm_eps, 1e-5);
  EXPECT_EQ(gpt2->activation, "gelu_new");
  EXPECT_FALSE(gpt2->rope.has_value());  // absent, not 10000

  const auto nested = read_hf_config(R"({"model_type":"gemma3","torch_dtype":"bfloat16","eos_token_id":[1,106],
    "text_config":{"model_type":"gemma3_text","hidden_size":2560,"rope_scaling":{"factor":8.0,"rope_type":"linear"}},"vision_config":{"hidden_size":1152}})");
  ASSERT_TRUE(nested) << nested.failure().message;
  EXPECT_EQ(nested->model_type, "gemma3_text");
  EXPECT_EQ(nested->hidden_size, 2560);
  EXPECT_EQ(nested->dtype, "bfloat16");
  EXPECT_THAT(nested->eos_ids, ElementsAre(1, 106));
  EXPECT_EQ(nested->rope->theta, std::nullopt);
  EXPECT_EQ(nested->rope->factor, 8.0);

  const auto phi = read_hf_config(R"({"model_type":"phi3","original_max_position_embeddings":4096,"rope_theta":10000.0,"partial_rotary_factor":0.75,
    "rope_scaling":{"type":"su","short_factor":[1.0,1.1],"long_factor":[1,2]},"pad_token_id":-1})");
  ASSERT_TRUE(phi) << phi.failure().message;
  EXPECT_EQ(phi->rope->type, "longrope");
  EXPECT_EQ(phi->rope->theta, 10000.0);
  EXPECT_EQ(phi->original_context, 4096);
  EXPECT_EQ(phi->partial_rotary_factor, 0.75);
  EXPECT_EQ(phi->pad_id, std::nullopt);

  // Version 5 files may keep the old top-level theta; the same value twice is no contradiction.
  EXPECT_EQ(why(R"("rope_theta":5e5,"rope_parameters":{"rope_type":"default","rope_theta":500000.0})"), "accepted");
  EXPECT_EQ(why(R"("rope_theta":5e5,"rope_scaling":null,"rope_parameters":{"rope_type":"default"})"), "accepted");
  EXPECT_EQ(why(R"("rope_theta":1e4,"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":2.0})"), "accepted");
  EXPECT_THAT(why(R"("rope_theta":1e4,"rope_parameters":{"rope_theta":1e6})"), HasSubstr("rope_theta is 1000000 here and 10000 beside it"));
  EXPECT_THAT(why(R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":4})"), HasSubstr("says something else"));
  EXPECT_THAT(why(R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"full_attention":{}})"), HasSubstr("cannot stand beside"));
  EXPECT_THAT(why(R"("rope_parameters":{"full_attention":{},"factor":2})"), HasSubstr("beside sets"));
  EXPECT_EQ(why(R"("rope_parameters":{"full_attention":{"rope_theta":1e6},"sliding_attention":null})"), "accepted");
}

TEST(HfConfig, GenerationConfigSaysWhereToStop) {
  const std::string config = R"({"model_type":"llama","eos_token_id":2,"vocab_size":200})";
  EXPECT_THAT(read_hf_config(config)->eos_ids, ElementsAre(2));
  EXPECT_THAT(read_hf_config(config, R"({"eos_token_id":[128,8,9]})")->eos_ids, ElementsAre(128, 8, 9));
  EXPECT_THAT(read_hf_config(config, R"({"eos_token_id":7,"bos_token_id":1})")->eos_ids, ElementsAre(7));
  EXPECT_EQ(read_hf_config(config, R"({"eos_token_id":7,"bos_token_id":1})")->bos_id, 1);
  EXPECT_THAT(read_hf_config(config, "{}")->eos_ids, ElementsAre(2));
  EXPECT_THAT(read_hf_config(config, "[]").failure().message, HasSubstr("generation_config.json"));
  EXPECT_FALSE(read_hf_config(config, R"({"eos_token_id":"2"})"));
}

TEST(HfConfig, G01Heads) {
  for (const char* heads : {"0", "-1", "4097", "1.0", "\"4\"", "[4]"}) EXPECT_NE(why("\"num_attention_heads\":" + std::string(heads)), "accepted") << heads;
  EXPECT_THAT(why("\"num_attention_heads\":0"), HasSubstr("$.num_attention_heads: expected an integer from 1 to 4096, found 0"));
  EXPECT_THAT(why("\"num_attention_heads\":9,\"num_key_value_heads\":4"), HasSubstr("9 query heads cannot be shared out among 4"));
  EXPECT_THAT(why("\"num_attention_heads\":4,\"num_key_value_heads\":0"), HasSubstr("found 0"));
  EXPECT_THAT(why("\"num_attention_heads\":9,\"hidden_size\":64"), HasSubstr("a hidden size of 64 does not divide into 9 heads"));
  EXPECT_EQ(why("\"num_attention_heads\":9,\"hidden_size\":64,\"head_dim\":64"), "accepted");
}

TEST(HfConfig, G02HeadDim) {
  for (const char* dim : {"0", "-8", "1025", "65536"}) EXPECT_THAT(why("\"head_dim\":" + std::string(dim)), HasSubstr("from 1 to 1024")) << dim;
  for (const char* dim : {"1", "3", "7", "1023"}) EXPECT_EQ(why("\"head_dim\":" + std::string(dim)), "accepted") << dim;  // odd ones are for rotary embeddings to refuse
}

TEST(HfConfig, G03Layers) {
  for (const char* n : {"0", "-1", "1000000000", "4097"}) EXPECT_THAT(why("\"num_hidden_layers\":" + std::string(n)), HasSubstr("from 1 to 4096")) << n;
  EXPECT_THAT(why(R"("num_hidden_layers":3,"layer_types":["full_attention"])"), HasSubstr("1 types for 3 layers"));
  EXPECT_NE(why(R"("layer_types":[1])"), "accepted");
  EXPECT_NE(why(R"("layer_types":[""])"), "accepted");
}

TEST(HfConfig, G04SpecialIdsOutsideTheVocabulary) {
  EXPECT_EQ(why(R"("vocab_size":10,"eos_token_id":9)"), "accepted");
  EXPECT_THAT(why(R"("vocab_size":10,"eos_token_id":[2,10])"), HasSubstr("the eos id 10 lies outside the vocabulary of 10"));
  EXPECT_THAT(why(R"("vocab_size":10,"bos_token_id":10)"), HasSubstr("bos id 10"));
  EXPECT_THAT(why(R"("vocab_size":10,"pad_token_id":32000)"), HasSubstr("pad id 32000"));
  EXPECT_NE(why(R"("eos_token_id":-2)"), "accepted");
  EXPECT_NE(why(R"("bos_token_id":[1,2])"), "accepted");
  EXPECT_NE(why(R"("vocab_size":0)"), "accepted");
  EXPECT_NE(why(R"("vocab_size":1000001)"), "accepted");
  std::string many = "\"eos_token_id\":[0";
  for (int i = 0; i < 1024; ++i) many += ",0";
  EXPECT_THAT(why(many + "]"), HasSubstr("1025 ids"));
}

TEST(HfConfig, G05Rope) {
  for (const char* theta : {"0", "-10000", "1e38", "0.5"}) EXPECT_THAT(why("\"rope_theta\":" + std::string(theta)), HasSubstr("$.rope_theta: expected a number from 1")) << theta;
  for (const char* theta : {"NaN", "Infinity"}) EXPECT_THAT(why("\"rope_theta\":" + std::string(theta)), HasSubstr("not valid JSON"));
  EXPECT_THAT(why(R"("rope_scaling":{"type":"cubic","factor":2})"), HasSubstr("$.rope_scaling: the rope type \"cubic\" is not supported (known: default, linear,"));
  EXPECT_EQ(read_hf_config(R"({"model_type":"x","rope_parameters":{"rope_type":"mrope"}})").failure().code, Code::kUnsupported);
  EXPECT_NE(why(R"("rope_scaling":{"type":"linear","factor":0})"), "accepted");
  EXPECT_NE(why(R"("rope_scaling":{"type":"linear","factor":-2})"), "accepted");
  EXPECT_NE(why(R"("rope_scaling":{"type":"longrope","short_factor":[1,0]})"), "accepted");
  EXPECT_NE(why(R"("rope_scaling":{"type":"longrope","short_factor":"x"})"), "accepted");
  EXPECT_NE(why(R"("rope_scaling":"linear")"), "accepted");
  EXPECT_NE(why(R"("partial_rotary_factor":1.5)"), "accepted");
  std::string factors = "\"rope_scaling\":{\"type\":\"longrope\",\"long_factor\":[1";
  for (int i = 0; i < 512; ++i) factors += ",1";
  EXPECT_THAT(why(factors + "]}"), HasSubstr("513 factors"));
}

TEST(HfConfig, G06G07G08Ranges) {
  for (const char* window : {"-1", "0", "4611686018427387904"}) EXPECT_THAT(why("\"sliding_window\":" + std::string(window)), HasSubstr("$.sliding_window")) << window;
  EXPECT_EQ(why("\"sliding_window\":null"), "accepted");
  for (const char* eps : {"0", "-1e-5", "1"}) EXPECT_THAT(why("\"rms_norm_eps\":" + std::string(eps)), HasSubstr("$.rms_norm_eps")) << eps;
  for (const char* context : {"0", "-5", "2147483648"}) EXPECT_THAT(why("\"max_position_embeddings\":" + std::string(context)), HasSubstr("$.max_position_embeddings")) << context;
  EXPECT_EQ(why("\"max_position_embeddings\":2147483647"), "accepted");
  EXPECT_NE(why("\"final_logit_softcapping\":0"), "accepted");
  EXPECT_NE(why("\"query_pre_attn_scalar\":0"), "accepted");
}

// G09: whatever passes is small enough that no product of sizes wraps in 64 bits.
TEST(HfConfig, G09TheLargestSizesMultiplyWithoutWrapping) {
  const auto c = read_hf_config(R"({"model_type":"x","hidden_size":1048576,"num_hidden_layers":4096,"num_attention_heads":4096,"num_key_value_heads":4096,
    "head_dim":1024,"intermediate_size":16777216,"vocab_size":1000000,"max_position_embeddings":2147483647})");
  ASSERT_TRUE(c) << c.failure().message;
  EXPECT_LT(static_cast<double>(*c->hidden_size) * 16777216.0 * 3 * 4096 * 8, 9.2e18);                           // all weights of the feed-forward in f64
  EXPECT_LT(static_cast<double>(*c->num_kv_heads) * static_cast<double>(*c->head_dim) * 2147483647.0 * 4, 9.2e18);  // keys of one layer in f32
  EXPECT_NE(why("\"hidden_size\":1048577"), "accepted");
}

TEST(HfConfig, OtherRefusals) {
  EXPECT_THAT(read_hf_config("{}").failure().message, HasSubstr("\"model_type\" is missing"));
  EXPECT_THAT(read_hf_config("[]").failure().message, HasSubstr("expected an object"));
  EXPECT_THAT(read_hf_config("").failure().message, HasSubstr("config.json: not valid JSON"));
  EXPECT_THAT(read_hf_config(R"({"model_type":"a\nb"})").failure().message, HasSubstr("expected a short name"));
  EXPECT_THAT(why(R"("hidden_size":1,"hidden_size":1)"), HasSubstr("twice"));
  EXPECT_THAT(why(R"("tie_word_embeddings":1)"), HasSubstr("expected a boolean"));
  const auto quantised = read_hf_config(R"({"model_type":"llama","quantization_config":{"quant_method":"gptq"}})");
  EXPECT_EQ(quantised.failure().code, Code::kUnsupported);
  EXPECT_EQ(why(R"("quantization_config":null)"), "accepted");
  EXPECT_NE(why(R"("architectures":"x")"), "accepted");
  EXPECT_NE(why(R"("text_config":[])"), "accepted");
}

TEST(HfConfig, EveryTruncationIsRefused) {
  const std::string whole = test_data("golden/hf/gemma3/config.json");
  const size_t last = whole.find_last_of('}');
  for (size_t n = 0; n <= last; ++n) ASSERT_FALSE(read_hf_config(std::string_view(whole).substr(0, n))) << n;
}

}  // namespace
}  // namespace regard
