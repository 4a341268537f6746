// `regard doctor`: what a report of a problem should say about the machine.
#include <fmt/format.h>

#include "command.h"
#include "help.h"
#include "regard/json.h"
#include "regard/runtime.h"
#include "regard/version.h"

namespace regard::cli {
namespace {

std::string size_text(int64_t bytes) {
  if (bytes <= 0) return "unknown";
  if (bytes < 1024 * 1024) return fmt::format("{} KiB", bytes / 1024);
  if (bytes < int64_t{1} << 30) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 1048576.0);
  return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 1073741824.0);
}

int run_doctor(Context& context) {
  const MachineInfo info = machine_info();
  const std::vector<std::string> libraries = loaded_libraries();
  if (context.arguments.flag("json")) {
    JsonWriter json;
    json.begin_object().member("schema", 1);
    json.member("cpu", info.cpu_name).member("isa", info.isa).key("isas").begin_array();
    for (const std::string& isa : info.isas) json.value(isa);
    json.end();
    json.member("cpus_online", info.cpus_online).member("cpus_allowed", info.cpus_allowed).key("cpu_quota");
    if (info.cpu_quota > 0) json.value(info.cpu_quota);
    else json.null();
    json.member("threads", info.threads);
    json.member("l1_data_bytes", info.l1_data_bytes).member("l2_bytes", info.l2_bytes).member("l3_bytes", info.l3_bytes);
    json.member("memory_bytes", info.memory_bytes).member("memory_available_bytes", info.memory_available_bytes);
    json.key("memory_limit_bytes");
    if (info.memory_limit_bytes > 0) json.value(info.memory_limit_bytes);
    else json.null();
    json.member("version", version()).member("compiler", compiler_name()).key("libraries").begin_array();
    for (const std::string& library : libraries) json.value(library);
    context.out.write(json.end().end().finish(JsonStyle::kIndented) + "\n");
    return 0;
  }
  Output& out = context.out;
  out.print("cpu           {}\n", info.cpu_name.empty() ? "unknown" : info.cpu_name);
  out.print("isa           {} (this machine can run: {})\n", info.isa, fmt::join(info.isas, ", "));
  out.print("threads       {}\n", info.threads);
  out.print("cpus          {} online, {} allowed, quota {}\n", info.cpus_online, info.cpus_allowed,
            info.cpu_quota > 0 ? fmt::format("{:.2f}", info.cpu_quota) : "none");
  out.print("caches        L1d {}, L2 {}, L3 {}\n", size_text(info.l1_data_bytes), size_text(info.l2_bytes), size_text(info.l3_bytes));
  out.print("memory        {} in all, {} available, limit {}\n", size_text(info.memory_bytes), size_text(info.memory_available_bytes),
            info.memory_limit_bytes > 0 ? size_text(info.memory_limit_bytes) : "none");
  out.print("version       regard {}, made by {}\n", version(), compiler_name());
  std::string list = wrap(fmt::format("{}", fmt::join(libraries, " ")), 14);
  out.write(list.replace(0, 9, "libraries"));
  return 0;
}

}  // namespace

Command doctor_command() {
  return {
      .name = "doctor",
      .summary = "describe this machine: CPU, threads, memory, versions",
      .description = "Prints what the program found out about the machine and what it will use: the CPU, the instruction set, the threads, "
                     "the memory and the versions of its parts. Please add it to a report.",
      .examples = {{"regard doctor", "A few lines to read or paste."}, {"regard doctor --json | jq .isa", "One fact for a script."}},
      .positionals = {},
      .options = {json_option()},
      .run = run_doctor,
  };
}

}  // namespace regard::cli
