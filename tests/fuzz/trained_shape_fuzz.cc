// The config.json of a checkpoint with model_type "regard": refused, or a shape of numbers that go together, whose decoder hides later
// keys.
#include "model/trained_shape.h"

#include "fuzz/fuzz.h"
#include "regard/error.h"

using regard::fuzz::demand;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto shape = regard::model::read_trained_shape({reinterpret_cast<const char*>(data), size});
  if (!shape) {
    demand(!shape.failure().message.empty());
    return 0;
  }
  demand(shape->architecture != regard::nn::Architecture::kEncoderDecoder || shape->num_encoder_layers >= 1);
  demand(shape->num_layers >= 1 && shape->hidden_size >= 1 && shape->vocab_size >= 1 && shape->max_positions >= 1);
  demand(shape->num_kv_heads >= 1 && shape->num_q_heads % shape->num_kv_heads == 0 && shape->head_dim >= 1);
  demand(shape->norm_eps > 0);
  for (int64_t head = 0; head < shape->num_q_heads && head < 3; ++head)
    for (int64_t q = 0; q < 12; ++q)
      for (int64_t k = q + 1; k < 12; ++k) demand(!shape->mask.allowed(0, head, q, k));
  demand(shape->num_classes >= 0 && (shape->num_classes == 0 || shape->architecture != regard::nn::Architecture::kEncoderDecoder));
  if (const auto names = regard::model::read_class_names({reinterpret_cast<const char*>(data), size}, shape->num_classes))
    demand(names->empty() || static_cast<int64_t>(names->size()) == shape->num_classes);
  regard::model::Facts facts;
  facts.kind = regard::model::FileKind::kHuggingFace;
  facts.architecture = "regard";
  regard::model::add_shape(*shape, facts);
  try {
    const regard::model::DecoderConfig main = regard::model::configure(regard::model::find_family(facts), facts);
    demand(static_cast<int64_t>(main.windowed.size()) == main.num_layers);
    demand(main.num_classes == shape->num_classes);
    if (main.cross_attention) demand(!regard::model::encoder_config(*shape, main).cross_attention);
  } catch (const regard::Error&) {
    // a rotary embedding that does not fit the heads, say
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  const auto add = [&](const std::string& numbers, const std::string& names, const std::string& mask, const std::string& architecture = "decoder",
                       const std::string& classes = "0") {
    all.push_back(R"({"model_type":"regard","architecture":")" + architecture + R"x(","encoder_mask":"window(3, 3)","num_encoder_layers":1,)x" +
                  R"("num_classes":)" + classes + R"(,"vocab_size":23,"hidden_size":16,"num_layers":2,)" + numbers +
                  R"(,"intermediate_size":24,"max_positions":32,"norm_eps":1e-5,"rope_theta":1e4,"t5_buckets":8,"t5_max_distance":16,)" + names +
                  R"(,"attention_scale":0.35,"embedding_scale":1,"biases":true,"tied":true,"mask":")" + mask + "\"}");
  };
  const std::string heads = R"("num_q_heads":4,"num_kv_heads":2,"head_dim":4)";
  const std::string names = R"("activation":"gelu_new","gated":false,"norm":"layer_norm","placement":"pre","position":"learned")";
  for (const char* mask : {"causal", "causal & window(3, 0)", "causal & (window(7, 0) | sinks(2))", "chunk(4) & causal", "per_head(causal, causal & dilated(2))",
                           "full", "tree(-1, 0, 1)", "causal & documents(0, 0, 1)", "~causal", "window("})
    add(heads, names, mask);
  for (const char* position : {"none", "sinusoidal", "rope", "alibi", "t5", "xl"})
    add(heads, R"("activation":"silu","gated":true,"norm":"rms_norm","placement":"post","position":")" + std::string(position) + '"', "causal");
  add(R"("num_q_heads":3,"num_kv_heads":2,"head_dim":5)", names, "causal");
  add(R"("num_q_heads":1,"num_kv_heads":1,"head_dim":3)", R"("activation":"relu","gated":true,"norm":"rms","placement":"sandwich","position":"rope")", "causal");
  for (const char* architecture : {"encoder", "encoder_decoder"})
    for (const char* position : {"learned", "rope", "t5", "xl"})
      add(heads, R"("activation":"relu","gated":false,"norm":"rms_norm","placement":"pre","position":")" + std::string(position) + '"', "causal", architecture);
  for (const char* classes : {"2", R"(2,"id2label":{"0":"no","1":"yes"})", R"(2,"id2label":{"0":"no"})", R"(2,"id2label":{"0":"no","2":"yes"})", R"(1,"id2label":null)"})
    for (const char* architecture : {"decoder", "encoder", "encoder_decoder"}) add(heads, names, "causal", architecture, classes);
  all.push_back(R"({"architecture":"encoder"})");
  all.push_back(R"({"architecture":"decoder","num_classes":3})");
  return all;
}
