// The C boundary: with api_collectives.cc every exported function, and nothing else of kolo is
// exported. What is done here is checking and translating arguments; see handles.h for how calls
// and errors pass.
#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <memory>
#include <string>
#include <vector>

#include "bindings_c/handles.h"
#include "bindings_c/options.h"
#include "bindings_c/requests.h"
#include "core/context.h"
#include "kolo/kolo.h"

using kolo::internal::close_shell;
using kolo::internal::Config;
using kolo::internal::Context;
using kolo::internal::guarded;
using kolo::internal::id_of;
using kolo::internal::invalid_argument;
using kolo::internal::is_kept;
using kolo::internal::is_persistent;
using kolo::internal::Logger;
using kolo::internal::LogLevel;
using kolo::internal::Nanos;
using kolo::internal::open_shell;
using kolo::internal::RequestId;
using kolo::internal::reserve_shell;
using kolo::internal::Result;
using kolo::internal::Status;
using kolo::internal::StatusCode;
using kolo::internal::thread_texts;
using kolo::internal::with_context;

struct kolo_config {
  Config config;
  kolo_log_callback log = nullptr;
  void* log_user = nullptr;
};

namespace {

// ---- Contexts ---------------------------------------------------------------------------------

template <typename Number>
int32_t number_of(kolo_context* shell, const char* function, Number number) noexcept {
  int32_t value = -1;
  with_context(shell, function, [&](Context& context) {
    value = (context.*number)();
    return Status::ok();
  });
  return value;
}

Logger::Sink sink_of(const kolo_config* config) {
  if (config == nullptr || config->log == nullptr) return {};
  return [log = config->log, user = config->log_user](LogLevel level, std::string_view text) {
    log(static_cast<kolo_log_level>(level), std::string(text).c_str(), user);
  };
}

// The settings of `config` over the environment.
Result<Config> effective(const kolo_config* config, std::vector<std::string>& unknown) {
  Config settings = config == nullptr ? Config() : config->config;
  KOLO_RETURN_IF_ERROR(settings.load_environment(unknown));
  return settings;
}

void warn_of_unknown(const std::vector<std::string>& unknown, const Config& config,
                     const Logger::Sink& sink) {
  if (unknown.empty() || config.integer("rank") != 0 || config.text("log_level") == "error") return;
  std::string names;
  for (const std::string& name : unknown) names += (names.empty() ? "" : ", ") + name;
  Logger logger;
  logger.set_rank(0);
  logger.set_sink(sink);
  logger.warning("no option of kolo has the name of the environment variable " + names +
                 "; ignored (is it misspelt?)");
}

Status init(const kolo_config* config, kolo_context** out) {
  std::vector<std::string> unknown;
  const auto settings = effective(config, unknown);
  if (!settings) return settings.status();
  const Logger::Sink sink = sink_of(config);
  warn_of_unknown(unknown, *settings, sink);
  const auto reserved = reserve_shell(*settings);
  if (!reserved) return reserved.status();
  kolo_context& shell = **reserved;
  try {
    auto made = Context::create(*settings, sink);
    if (!made) {
      close_shell(shell);
      return made.status();
    }
    open_shell(shell, *std::move(made));
  } catch (...) {
    close_shell(shell);
    throw;
  }
  *out = &shell;
  return Status::ok();
}

// ---- Requests ---------------------------------------------------------------------------------

Status null_request(const char* function) {
  return invalid_argument(std::string(function) + ": the pointer to the request is null");
}

Result<Nanos> limit_of(std::int64_t timeout_ms) {
  if (timeout_ms < KOLO_FOREVER) {
    return invalid_argument("the wait's timeout_ms is " + std::to_string(timeout_ms) +
                            "; give 0 or more, or KOLO_FOREVER");
  }
  if (timeout_ms == KOLO_FOREVER || timeout_ms > kolo::internal::kMostMilliseconds)
    return kolo::internal::kNever;
  return Nanos(std::chrono::milliseconds(timeout_ms));
}

void forget_if_done(kolo_request& request, bool done) {
  if (done && !is_kept(request)) request = KOLO_REQUEST_NULL;
}

Status wait_all(Context& context, kolo_request* requests, std::size_t count, Nanos limit) {
  constexpr std::size_t kMostRequests = std::size_t{1} << 24;
  if (count > kMostRequests) {
    return invalid_argument("kolo_wait_all: count is " + std::to_string(count) + "; at most " +
                            std::to_string(kMostRequests) + " requests are waited for at once");
  }
  boost::container::small_vector<RequestId, 64> ids(count);  // on the stack unless there are many
  std::transform(requests, requests + count, ids.begin(), id_of);
  boost::container::small_vector<bool, 64> done(count);
  const Status status = context.wait_all({ids.data(), count}, limit, {done.data(), count});
  for (std::size_t i = 0; i < count; ++i) forget_if_done(requests[i], done[i]);
  return status;
}

std::string make_build_info() {
  const auto has = [](bool present) { return std::string(present ? "true" : "false"); };
  std::string text = "{\"version\":\"" + std::string(kolo_version()) + "\"";
  text += ",\"abi\":" + std::to_string(KOLO_ABI_VERSION);
  text += ",\"compiler\":\"g++ " __VERSION__ "\"";
  const std::string mpi = kolo::internal::mpi_module_found();
  text += ",\"roads\":[\"shm\",\"tcp\"" + std::string(mpi.empty() ? "" : ",\"mpi\"") + "]";
  text += ",\"mpi\":" + has(!mpi.empty()) + "," + kolo::internal::gpus_found();
#if defined(__x86_64__)
  text += ",\"cpu\":{\"avx2\":" + has(__builtin_cpu_supports("avx2") != 0) +
          ",\"f16c\":" + has(__builtin_cpu_supports("f16c") != 0) +
          ",\"avx512f\":" + has(__builtin_cpu_supports("avx512f") != 0) + "}";
#else
  text += ",\"cpu\":{}";
#endif
  return text + "}";
}

}  // namespace

#define KOLO_STRING_(x) #x
#define KOLO_STRING(x) KOLO_STRING_(x)

extern "C" {

const char* kolo_version(void) {
  return KOLO_STRING(KOLO_VERSION_MAJOR) "." KOLO_STRING(KOLO_VERSION_MINOR) "." KOLO_STRING(
      KOLO_VERSION_PATCH);
}

const char* kolo_build_info(void) {
  try {
    static const std::string* const info = new std::string(make_build_info());
    return info->c_str();
  } catch (...) {
    return "{}";
  }
}

const char* kolo_status_string(kolo_status status) {
  return kolo::internal::status_code_name(static_cast<StatusCode>(status));
}

const char* kolo_last_error(void) { return thread_texts().shown_error; }

kolo_status kolo_config_create(kolo_config** config) {
  return guarded([&] {
    if (config == nullptr) return invalid_argument("kolo_config_create: config is null");
    *config = nullptr;
    *config = new kolo_config;
    return Status::ok();
  });
}

kolo_status kolo_config_set(kolo_config* config, const char* key, const char* value) {
  return guarded([&] {
    if (config == nullptr || key == nullptr || value == nullptr) {
      return invalid_argument("kolo_config_set: config, key or value is null");
    }
    return config->config.set(key, value);
  });
}

kolo_status kolo_config_get(const kolo_config* config, const char* key, const char** value) {
  return guarded([&] {
    if (key == nullptr || value == nullptr) {
      return invalid_argument("kolo_config_get: key or value is null");
    }
    KOLO_RETURN_IF_ERROR(Config::check_key(key));
    std::vector<std::string> unknown;
    const auto settings = effective(config, unknown);
    if (!settings) return settings.status();
    thread_texts().config_value = settings->text(key);
    *value = thread_texts().config_value.c_str();
    return Status::ok();
  });
}

kolo_status kolo_set_log_callback(kolo_config* config, kolo_log_callback callback, void* user) {
  return guarded([&] {
    if (config == nullptr) return invalid_argument("kolo_set_log_callback: config is null");
    config->log = callback;
    config->log_user = user;
    return Status::ok();
  });
}

kolo_status kolo_config_destroy(kolo_config* config) {
  delete config;
  return KOLO_OK;
}

kolo_status kolo_init_abi(const kolo_config* config, kolo_context** context, int32_t abi_version) {
  return guarded([&]() -> Status {
    if (context == nullptr) return invalid_argument("kolo_init: context is null");
    *context = nullptr;
    if (abi_version != KOLO_ABI_VERSION) {
      return {StatusCode::kUnsupported,
              "kolo_init: the program was built for ABI " + std::to_string(abi_version) +
                  " and libkolo " + kolo_version() + " has ABI " +
                  std::to_string(KOLO_ABI_VERSION) + "; rebuild it with this library's kolo.h"};
    }
    return init(config, context);
  });
}

kolo_status kolo_shutdown(kolo_context* context) {
  bool is_over = false;
  const kolo_status status = with_context(context, "kolo_shutdown", [&](Context& inner) {
    Status left = inner.shutdown();
    is_over =
        left.code() != StatusCode::kNotInitialized && left.code() != StatusCode::kWouldDeadlock;
    return left;
  });
  if (!is_over) return status;
  const kolo_status closed = guarded([&] {
    close_shell(*context);
    return Status::ok();
  });
  return status != KOLO_OK ? status : closed;
}

kolo_status kolo_abort(kolo_context* context, const char* reason) {
  return with_context(context, "kolo_abort",
                      [&](Context& inner) { return inner.abort(reason == nullptr ? "" : reason); });
}

kolo_status kolo_health(kolo_context* context) {
  return with_context(context, "kolo_health", [](Context& inner) { return inner.health(); });
}

kolo_status kolo_info(kolo_context* context, const char** json) {
  return with_context(context, "kolo_info", [&](Context& inner) {
    if (json == nullptr) return invalid_argument("kolo_info: json is null");
    thread_texts().info = inner.info_json();
    *json = thread_texts().info.c_str();
    return Status::ok();
  });
}

int32_t kolo_rank(kolo_context* context) { return number_of(context, "kolo_rank", &Context::rank); }
int32_t kolo_size(kolo_context* context) { return number_of(context, "kolo_size", &Context::size); }
int32_t kolo_local_rank(kolo_context* context) {
  return number_of(context, "kolo_local_rank", &Context::local_rank);
}
int32_t kolo_local_size(kolo_context* context) {
  return number_of(context, "kolo_local_size", &Context::local_size);
}

kolo_status kolo_alloc(kolo_context* context, size_t bytes, void** memory) {
  if (memory != nullptr) *memory = nullptr;
  return with_context(context, "kolo_alloc", [&](Context& inner) {
    if (memory == nullptr) return invalid_argument("kolo_alloc: memory is null");
    const auto allocated = inner.allocate(bytes);
    if (!allocated) return allocated.status();
    *memory = *allocated;
    return Status::ok();
  });
}

kolo_status kolo_alloc_device(kolo_context* context, int32_t device, size_t bytes, void** memory) {
  if (memory != nullptr) *memory = nullptr;
  return with_context(context, "kolo_alloc_device", [&](Context& inner) {
    if (memory == nullptr) return invalid_argument("kolo_alloc_device: memory is null");
    if (device < 0) {
      return invalid_argument("kolo_alloc_device: device is " + std::to_string(device) +
                              "; give the number of a CUDA device, or use kolo_alloc");
    }
    const auto allocated = inner.allocate_on(device, bytes);
    if (!allocated) return allocated.status();
    *memory = *allocated;
    return Status::ok();
  });
}

kolo_status kolo_free(kolo_context* context, void* memory) {
  return with_context(context, "kolo_free", [&](Context& inner) {
    return memory == nullptr ? Status::ok() : inner.free(memory);
  });
}

kolo_status kolo_group_begin(kolo_context* context, const char* name) {
  return with_context(context, "kolo_group_begin", [&](Context& inner) {
    return inner.group_begin(name == nullptr ? "" : name);
  });
}

kolo_status kolo_group_end(kolo_context* context, kolo_request* request) {
  return with_context(context, "kolo_group_end", [&](Context& inner) {
    if (request == nullptr) return inner.group_run();
    *request = KOLO_REQUEST_NULL;
    const auto id = inner.group_end();
    if (!id) return id.status();
    *request = *id;
    return Status::ok();
  });
}

kolo_status kolo_test(kolo_context* context, kolo_request* request, int32_t* done) {
  return with_context(context, "kolo_test", [&](Context& inner) {
    if (request == nullptr) return null_request("kolo_test");
    if (done == nullptr) return invalid_argument("kolo_test: done is null");
    *done = 1;
    if (*request == KOLO_REQUEST_NULL) return Status::ok();
    bool is_done = false;
    Status status = inner.test(id_of(*request), is_done);
    *done = is_done ? 1 : 0;
    forget_if_done(*request, is_done);
    return status.code() == StatusCode::kInProgress ? Status::ok() : status;
  });
}

kolo_status kolo_wait(kolo_context* context, kolo_request* request, int64_t timeout_ms) {
  return with_context(context, "kolo_wait", [&](Context& inner) {
    if (request == nullptr) return null_request("kolo_wait");
    const auto limit = limit_of(timeout_ms);
    if (!limit) return limit.status();
    if (*request == KOLO_REQUEST_NULL) return Status::ok();
    bool is_done = false;
    Status status = inner.wait(id_of(*request), *limit, is_done);
    forget_if_done(*request, is_done);
    return status;
  });
}

kolo_status kolo_stream_wait(kolo_context* context, kolo_request request, void* stream,
                             int64_t timeout_ms) {
  return with_context(context, "kolo_stream_wait", [&](Context& inner) {
    const auto limit = limit_of(timeout_ms);
    if (!limit) return limit.status();
    if (request == KOLO_REQUEST_NULL) return Status::ok();
    return inner.stream_wait(id_of(request), stream, *limit);
  });
}

kolo_status kolo_wait_all(kolo_context* context, kolo_request* requests, size_t count,
                          int64_t timeout_ms) {
  return with_context(context, "kolo_wait_all", [&](Context& inner) {
    if (requests == nullptr && count > 0) return null_request("kolo_wait_all");
    const auto limit = limit_of(timeout_ms);
    if (!limit) return limit.status();
    return wait_all(inner, requests, count, *limit);
  });
}

kolo_status kolo_start(kolo_context* context, const kolo_request* requests, size_t count) {
  return with_context(context, "kolo_start", [&](Context& inner) {
    if (requests == nullptr && count > 0) return null_request("kolo_start");
    if (!std::all_of(requests, requests + count, is_persistent)) {
      return invalid_argument(
          "kolo_start: one of the requests is not persistent; make it with the "
          "option persistent = 1");
    }
    boost::container::small_vector<RequestId, 64> ids(count);
    std::transform(requests, requests + count, ids.begin(), id_of);
    return inner.start({ids.data(), count});
  });
}

kolo_status kolo_request_output(kolo_context* context, kolo_request request, void** output,
                                size_t* count, const size_t** counts) {
  return with_context(context, "kolo_request_output", [&](Context& inner) {
    if (output == nullptr || count == nullptr) {
      return invalid_argument("kolo_request_output: output or count is null");
    }
    const auto found = inner.output(id_of(request));
    if (!found) return found.status();
    *output = found->memory;
    *count = found->count;
    if (counts != nullptr) *counts = found->counts;
    return Status::ok();
  });
}

kolo_status kolo_request_free(kolo_context* context, kolo_request* request) {
  return with_context(context, "kolo_request_free", [&](Context& inner) {
    if (request == nullptr) return null_request("kolo_request_free");
    if (*request == KOLO_REQUEST_NULL) return Status::ok();
    KOLO_RETURN_IF_ERROR(inner.release(id_of(*request)));
    *request = KOLO_REQUEST_NULL;
    return Status::ok();
  });
}

}  // extern "C"
