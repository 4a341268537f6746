// The machine and the process: how many threads to use, what to tell a reporter, where files and messages go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "regard/export.h"

namespace regard {

/// Threads that every function uses which was not given a number: REGARD_THREADS where it is set, else what the affinity mask
/// and the control groups' quota allow, rounded down. Errors: kInvalidArgument when REGARD_THREADS is not in [1, 1024].
REGARD_API int num_threads();

/// Sets that number, from 1 to 1024. Call it while no other function of the library is running. Results do not depend on it.
/// Errors: kInvalidArgument outside the range; kResourceExhausted when the system refuses to start a thread.
REGARD_API void set_num_threads(int threads);

/// What the library found out about the machine; 0 or empty where the system does not tell.
struct MachineInfo {
  std::string cpu_name;
  std::string isa;                     ///< the instruction set in use, as REGARD_ISA names it
  std::vector<std::string> isas;       ///< all that this machine can run
  int cpus_online = 0;
  int cpus_allowed = 0;                ///< in the affinity mask of this process
  double cpu_quota = 0;                ///< CPUs' worth of time that the control groups allow; 0 is no limit
  int threads = 0;                     ///< num_threads()
  int64_t l1_data_bytes = 0;           ///< data caches of the first CPU
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int64_t memory_bytes = 0;            ///< of the machine
  int64_t memory_available_bytes = 0;  ///< what a new program could take without swapping
  int64_t memory_limit_bytes = 0;      ///< of the control groups; 0 is no limit
};

/// Errors: as num_threads() and REGARD_ISA (kInvalidArgument, kUnsupported).
REGARD_API MachineInfo machine_info();

/// The compiler that made the library, as "name version".
REGARD_API std::string compiler_name();

/// File names of the shared libraries in this process, such as "libfmt.so.9.1.0", in alphabetical order.
REGARD_API std::vector<std::string> loaded_libraries();

/// Writes a file whole or not at all: the name shows the old file until the new one is complete and durable. Devices and pipes
/// are written to directly. Errors: kIo with the system's reason, kNotFound, kInvalidArgument (a directory).
REGARD_API void save_file(const std::string& path, std::string_view bytes);

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Receives one message, without a line end. May be called from any thread, also from several at once.
using LogCallback = void (*)(LogLevel level, std::string_view message, void* context);

/// Sends the library's messages to `callback` from now on; nullptr (the state at the start) drops them. The library itself
/// never prints. `context` is handed to the callback as it is.
REGARD_API void set_log_callback(LogCallback callback, void* context);

}  // namespace regard
