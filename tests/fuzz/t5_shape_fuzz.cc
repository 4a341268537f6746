// A config.json of T5: refused, or a shape whose numbers go together and from which both stacks can be configured.
#include <string_view>

#include "fuzz/fuzz.h"
#include "model/family.h"
#include "model/t5_shape.h"
#include "model/trained_shape.h"
#include "regard/error.h"

using regard::fuzz::demand;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  regard::model::Facts facts;
  facts.kind = regard::model::FileKind::kHuggingFace;
  facts.architecture = "t5";
  if (!regard::model::add_t5(text, facts)) return 0;
  demand(!facts.decoder_start || (*facts.decoder_start >= 0 && *facts.decoder_start < *facts.vocab_size));
  const regard::nn::TransformerConfig& shape = *facts.shape;
  demand(shape.num_layers >= 1 && shape.vocab_size >= 1 && shape.hidden_size >= 1 && shape.max_positions >= 1);
  demand(shape.num_q_heads % shape.num_kv_heads == 0 && shape.head_dim >= 1);
  demand(shape.num_encoder_layers >= 1);
  try {
    const regard::model::DecoderConfig main = regard::model::configure(regard::model::find_family(facts), facts);
    demand(static_cast<int64_t>(main.windowed.size()) == main.num_layers);
    const regard::model::DecoderConfig encoder = regard::model::encoder_config(shape, main);
    demand(main.cross_attention && !encoder.cross_attention && static_cast<int64_t>(encoder.windowed.size()) == encoder.num_layers);
  } catch (const regard::Error&) {
    // numbers that a shape may have and a model may not
  }
  return 0;
}

std::vector<std::string> regard::fuzz::seeds() {
  std::vector<std::string> all;
  const std::string t5 =
      R"({"vocab_size":80,"d_model":24,"d_kv":6,"d_ff":32,"num_heads":3,"num_layers":2,"relative_attention_num_buckets":8,)";
  for (const char* rest : {R"("feed_forward_proj":"relu","tie_word_embeddings":true,"decoder_start_token_id":0})",
                           R"("num_decoder_layers":1,"feed_forward_proj":"gated-gelu","tie_word_embeddings":false,"pad_token_id":1,"n_positions":64})",
                           R"("scale_decoder_outputs":false,"is_encoder_decoder":true,"layer_norm_epsilon":1e-5,"relative_attention_max_distance":20})",
                           R"("is_encoder_decoder":false})", R"("feed_forward_proj":"gated-silu"})", R"("decoder_start_token_id":80})"})
    all.push_back(t5 + rest);
  return all;
}
