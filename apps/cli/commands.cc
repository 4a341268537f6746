// The list of commands, and what they share.
#include "command.h"

namespace regard::cli {

const std::vector<Command>& commands() {
  static const std::vector<Command> all = {
      generate_command(),   poem_command(),       chat_command(),          tokens_encode_command(), tokens_decode_command(), tokens_train_command(),
      eval_command(),       train_command(),      info_command(),       convert_command(),        logits_command(),        classify_command(),      attend_command(),        mask_draw_command(),
      mask_count_command(),
      mask_row_command(),   mask_column_command(), mask_prove_command(),   mask_why_command(),      mask_check_command(),
      doctor_command(),     completion_command(),  version_command(),      help_command(),
  };
  return all;
}

const std::vector<Option>& common_options() {
  static const std::vector<Option> options = {
      {.name = "help", .letter = 'h', .help = "Shows this and ends."},
      {.name = "threads", .letter = 't', .type = Type::kInteger, .value = "N",
       .help = "Threads to compute with; without it, as many as the CPU affinity and the container allow. Changes no bit of a result.",
       .min = 1, .max = 1024},
      {.name = "isa", .type = Type::kChoice, .value = "NAME", .help = "Instruction set to use; without it, the best one of this machine.",
       .choices = "baseline|avx2|avx512|avx512_bf16"},
      {.name = "color", .type = Type::kChoice, .value = "WHEN",
       .help = "Whether messages have colour; auto: on terminals, unless NO_COLOR is set or TERM is dumb.", .fallback = "auto",
       .choices = "auto|always|never"},
      {.name = "quiet", .letter = 'q', .help = "No notes, warnings or progress on standard error, only errors."},
      {.name = "no-progress", .help = "No progress on standard error."},
      {.name = "settings", .type = Type::kInputFile, .value = "FILE",
       .help = "Defaults of one's own, in JSON: {\"threads\": 2, \"generate\": {\"seed\": 7}}. Without it, regard/settings.json in "
               "$XDG_CONFIG_HOME or ~/.config, if it is there. The command line and the environment go before."},
      {.name = "print-config", .help = "Shows every option's value and where it came from, and ends."},
  };
  return options;
}

std::vector<Option> all_options(const Command& command) { return join({command.options, common_options()}); }

std::vector<Option> join(std::initializer_list<std::vector<Option>> parts) {
  std::vector<Option> all;
  for (const std::vector<Option>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

Option json_option() { return {.name = "json", .help = "Prints one JSON object instead of text.", .section = Section::kCommon}; }

}  // namespace regard::cli
