// A config.json, and after the first zero byte a generation_config.json: either refused, or numbers in the ranges that
// everything behind relies on.
#include "format/hf_config.h"

#include <string_view>

#include "fuzz/fuzz.h"

using regard::fuzz::demand;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const size_t cut = text.find('\0');
  const auto config = regard::read_hf_config(text.substr(0, cut), cut == std::string_view::npos ? std::string_view() : text.substr(cut + 1));
  if (!config) return 0;
  demand(!config->model_type.empty());
  const auto within = [](const std::optional<int64_t>& value, int64_t max) { return !value || (*value >= 1 && *value <= max); };
  demand(within(config->hidden_size, 1 << 20) && within(config->num_layers, 4096) && within(config->num_q_heads, 4096));
  demand(within(config->head_dim, 1024) && within(config->vocab_size, 1'000'000) && within(config->context, 2147483647));
  if (config->num_q_heads && config->num_kv_heads) demand(*config->num_q_heads % *config->num_kv_heads == 0);
  if (config->num_layers && !config->layer_types.empty()) demand(static_cast<int64_t>(config->layer_types.size()) == *config->num_layers);
  for (const int64_t id : config->eos_ids) demand(id >= 0 && (!config->vocab_size || id < *config->vocab_size));
  demand(!(config->rope && !config->rope_by_layer_type.empty()));
  if (config->norm_eps) demand(*config->norm_eps > 0);
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  const std::string head = R"({"model_type":"llama",)";
  for (const char* fields :
       {R"("hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"intermediate_size":96,"vocab_size":100})",
        R"("max_position_embeddings":256,"rms_norm_eps":1e-05,"hidden_act":"silu","tie_word_embeddings":true,"attention_bias":false,"mlp_bias":false,"use_bias":true})",
        R"("rope_theta":500.0,"rope_scaling":{"type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32}})",
        R"("rope_parameters":{"full_attention":{"rope_type":"linear","factor":4.0,"rope_theta":2e3},"sliding_attention":{"rope_theta":100.0}},"rope_local_base_freq":1e4})",
        R"("rope_parameters":{"rope_type":"yarn","beta_fast":4.0,"beta_slow":1,"truncate":false,"attention_factor":1,"mscale":1,"mscale_all_dim":1},"rope_theta":9})",
        R"("rope_scaling":{"type":"su","short_factor":[1.0,1.25],"long_factor":[1.5,2]},"partial_rotary_factor":0.5,"original_max_position_embeddings":64})",
        R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":4}})", R"("rope_scaling":{"type":"cubic"}})",
        R"("rope_scaling":{"type":"linear"},"rope_parameters":{"a":{}}})", R"("rope_parameters":{"a":{},"b":1}})", R"("rope_parameters":{"rope_theta":5},"rope_theta":6})",
        R"("sliding_window":8,"use_sliding_window":true,"max_window_layers":2,"sliding_window_pattern":6,"num_hidden_layers":2,"layer_types":["full_attention","x"]})",
        R"("query_pre_attn_scalar":24,"attn_logit_softcapping":50.0,"final_logit_softcapping":30.0,"use_bidirectional_attention":false,"dtype":"float32"})",
        R"("bos_token_id":1,"pad_token_id":-1,"eos_token_id":[2,5],"architectures":["LlamaForCausalLM"],"vocab_size":6})", R"("vocab_size":2,"eos_token_id":2})",
        R"("num_attention_heads":3,"num_key_value_heads":2})", R"("num_attention_heads":3,"hidden_size":64})", R"("num_hidden_layers":3,"layer_types":[]})",
        R"("quantization_config":{}})", R"("text_config":{"model_type":"gemma3_text","hidden_size":64},"torch_dtype":"bfloat16"})"})
    all.push_back(head + fields);
  all.push_back(head + R"("eos_token_id":2})" + std::string(1, '\0') + R"({"eos_token_id":[1,3],"bos_token_id":0})");
  all.push_back(head + R"("eos_token_id":2})" + std::string(1, '\0') + R"({"bos_token_id":[0,1]})");
  return all;
}
