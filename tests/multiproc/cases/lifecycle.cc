// S26, S31, S33, S39, S74, fork, and an init after one that failed.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/multiproc/cases/job.h"

namespace kolo::cases {
namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// kolo_init with these settings over the environment; no context must come of it but with KOLO_OK.
using Settings = std::vector<std::pair<const char*, std::string>>;
kolo_status init_with(const Settings& settings, kolo_context** context) {
  kolo_config* config = nullptr;
  expect_status(kolo_config_create(&config), KOLO_OK, "kolo_config_create");
  for (const auto& [key, value] : settings) {
    expect_status(kolo_config_set(config, key, value.c_str()), KOLO_OK, key);
  }
  const kolo_status status = kolo_init(config, context);
  KOLO_EXPECT((*context != nullptr) == (status == KOLO_OK));
  kolo_config_destroy(config);
  return status;
}

// ---- Who is missing, who is there already -----------------------------------------------------

// Ranks 0 and 2 of 3, started by hand.
int s26() {
  kolo_context* context = nullptr;
  const Stopwatch watch;
  expect_status(kolo_init(nullptr, &context), KOLO_TIMED_OUT, "kolo_init");
  watch.expect_between(5, 6, "kolo_init gave up");
  KOLO_EXPECT(context == nullptr);
  expect_text({"rank 1", variable("KOLO_RENDEZVOUS")});
  KOLO_EXPECT(std::strstr(kolo_last_error(), "rank 2") == nullptr);  // it is there
  return 0;
}

// The descriptors above the standard ones, as the system names them.
std::vector<std::string> open_descriptors() {
  std::vector<std::string> open;
  DIR* folder = ::opendir("/proc/self/fd");
  KOLO_EXPECT(folder != nullptr);
  while (const dirent* entry = ::readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd <= STDERR_FILENO || fd == ::dirfd(folder)) continue;
    char target[256] = "";
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    const ssize_t length = ::readlink(link.c_str(), target, sizeof target - 1);
    open.emplace_back(target, length > 0 ? static_cast<std::size_t>(length) : 0);
  }
  ::closedir(folder);
  return open;
}

int s31_helper() {
  for (const std::string& what : open_descriptors()) {
    if (what.starts_with("socket:") || what.starts_with("/memfd") || what.starts_with("anon_inode"))
      fail("the helper holds " + what + " of its parent");
  }
  kolo_context* context = nullptr;
  const Stopwatch watch;
  expect_status(kolo_init(nullptr, &context), KOLO_INVALID_ARGUMENT, "the helper's kolo_init");
  watch.expect_between(0, 1, "the helper's kolo_init failed");
  expect_text({"rank already present", "rank 0"});
  KOLO_EXPECT(context == nullptr);
  return 0;
}

pid_t start_self(const char* id) {
  const pid_t child = ::fork();
  KOLO_EXPECT(child >= 0);
  if (child != 0) return child;
  ::execl("/proc/self/exe", "case_ranks", id, nullptr);
  ::_exit(kFailed);
}

// Exact steps until rank 0 has seen its children end, and some after that.
void steps_until_gone(const Job& job, std::vector<pid_t> children, int want_code) {
  int steps_after = 20;
  while (true) {
    std::erase_if(children, [&](pid_t child) {
      int status = 0;
      if (::waitpid(child, &status, WNOHANG) != child) return false;
      const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      if (code != want_code) fail("a child ended with " + std::to_string(code));
      return true;
    });
    job.probe();
    const std::vector<std::int32_t> left = {static_cast<std::int32_t>(children.size())};
    if (job.reduce("children left", left, KOLO_MAX)[0] == 0 && --steps_after == 0) return;
  }
}

int s31() {
  const Job job;
  job.expect_size(2);
  job.probe();
  std::vector<pid_t> helpers;
  for (int i = 0; job.rank() == 0 && i < 3; ++i) helpers.push_back(start_self("S31-helper"));
  steps_until_gone(job, std::move(helpers), 0);
  job.shutdown();
  return 0;
}

// ---- Callbacks --------------------------------------------------------------------------------

struct Seen {
  kolo_context* context = nullptr;
  std::atomic<kolo_request> own{KOLO_REQUEST_NULL};
  kolo_request other = KOLO_REQUEST_NULL;
  kolo_status of_own = KOLO_INTERNAL, of_other = KOLO_INTERNAL, of_shutdown = KOLO_INTERNAL;
  double seconds = -1;
  std::atomic<bool> over{false};
};

void ask_for_deadlocks(kolo_status, const char*, void* user) {
  auto& seen = *static_cast<Seen*>(user);
  const Stopwatch watch;
  kolo_request own = seen.own;
  kolo_request other = seen.other;
  seen.of_own = kolo_wait(seen.context, &own, KOLO_FOREVER);
  seen.of_other = kolo_wait(seen.context, &other, KOLO_FOREVER);
  seen.of_shutdown = kolo_shutdown(seen.context);
  seen.seconds = watch.seconds();
  seen.over = true;
}

void throw_something(kolo_status, const char*, void* user) {
  static_cast<std::atomic<bool>*>(user)->store(true);
  throw std::runtime_error("thrown by a callback");
}

void await(const std::atomic<bool>& flag) {
  const Stopwatch watch;
  while (!flag) {
    if (watch.seconds() > 10) fail("the callback does not come");
    sleep_ms(1);
  }
}

// Rank 1 is late, so that rank 0's callback finds its handle and one that runs; then in turn.
int s33() {
  const Job job;
  job.expect_size(2);
  for (int turn = 0; turn < 2; ++turn) {
    const bool late = job.rank() != turn;
    if (late) sleep_ms(100);
    Seen seen;
    seen.context = job.context();
    std::vector<float> running = {1.0F};
    if (!late) seen.other = job.submit("running", running);
    float value = 1.0F;
    kolo_options options = named("asks");
    options.callback = ask_for_deadlocks;
    options.user = &seen;
    if (late) options.callback = nullptr;
    kolo_request own = job.submit_raw(options, &value, 1, KOLO_FLOAT32);
    seen.own = own;
    if (!late) {
      await(seen.over);
      KOLO_EXPECT(seen.of_own == KOLO_OK || seen.of_own == KOLO_WOULD_DEADLOCK);
      KOLO_EXPECT(seen.of_other == KOLO_WOULD_DEADLOCK);
      KOLO_EXPECT(seen.of_shutdown == KOLO_WOULD_DEADLOCK);
      KOLO_EXPECT(seen.seconds >= 0 && seen.seconds < 0.2);
      if (seen.of_own == KOLO_OK) own = KOLO_REQUEST_NULL;  // completed there
    }
    job.finish(own, KOLO_OK);
    KOLO_EXPECT(value == 2.0F);
    job.probe();
    if (late) seen.other = job.submit("running", running);
    job.finish(seen.other, KOLO_OK);
    KOLO_EXPECT(running[0] == 2.0F);
  }
  for (int round = 0; round < 3; ++round) {
    std::atomic<bool> called{false};
    kolo_options options = named("throws");
    options.callback = throw_something;
    options.user = &called;
    float value = 1.0F;
    job.finish(job.submit_raw(options, &value, 1, KOLO_FLOAT32), KOLO_OK);
    await(called);
    KOLO_EXPECT(value == 2.0F);
    job.probe();
  }
  job.shutdown();
  return 0;
}

// ---- A slow rank ------------------------------------------------------------------------------

int s39() {
  const Job job;
  job.expect_size(2);
  if (job.rank() == 1) sleep_ms(5000);
  constexpr std::size_t kTensors = 300;
  std::vector<std::vector<float>> values(kTensors);
  std::vector<kolo_request> requests;
  for (std::size_t i = 0; i < kTensors; ++i) {
    values[i].assign(100 + i, static_cast<float>(i + 1));
    const std::string name = "encoder.layers." + std::to_string(i) + ".attention.weight";
    requests.push_back(job.submit(name.c_str(), values[i]));
  }
  for (std::size_t i = 0; i < kTensors; ++i) {
    job.finish(requests[i], KOLO_OK);
    for (const float value : values[i]) KOLO_EXPECT(value == 2.0F * static_cast<float>(i + 1));
  }
  job.shutdown();
  return 0;
}

// ---- A place to meet --------------------------------------------------------------------------

int s74_sizes() {
  kolo_config* config = nullptr;
  expect_status(kolo_config_create(&config), KOLO_OK, "kolo_config_create");
  for (const char* size : {"0", "-1", "-2147483648", "1000000000", "99999999999999999999", ""}) {
    expect_status(kolo_config_set(config, "size", size), KOLO_INVALID_ARGUMENT, size);
    expect_text({"size"});
    ::setenv("KOLO_SIZE", size, 1);
    ::setenv("KOLO_RANK", "0", 1);
    kolo_context* context = nullptr;
    expect_status(kolo_init(nullptr, &context), KOLO_INVALID_ARGUMENT, size);
    expect_text({"KOLO_SIZE"});
    KOLO_EXPECT(context == nullptr);
  }
  kolo_config_destroy(config);
  return 0;
}

// A listener on a free port of the loopback interface.
int listen_somewhere(std::string& place) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  KOLO_EXPECT(::bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0);
  KOLO_EXPECT(::listen(listener, 4) == 0);
  KOLO_EXPECT(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0);
  place = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  return listener;
}

int free_place() {
  std::string place;
  ::close(listen_somewhere(place));
  std::printf("%s\n", place.c_str());
  return 0;
}

// Where rank 0 would serve, somebody else does: another program, or another job's rank 0.
int s74_port() {
  std::string place;
  const int listener = listen_somewhere(place);
  const auto expect_taken = [&](const char* job) {
    kolo_context* context = nullptr;
    const Stopwatch watch;
    const Settings settings = {{"job", job},
                               {"rank", "0"},
                               {"size", "2"},
                               {"rendezvous", place},
                               {"secret", "the secret of another job"}};
    expect_status(init_with(settings, &context), KOLO_RESOURCE, "a second server");
    watch.expect_between(0, 1, "the second server was refused");
    expect_text({place, "in use"});
  };
  expect_taken("one");
  ::close(listener);

  // The first job's rank 0 waits for its rank 1, which comes when the second job was refused.
  const auto first = [&](const char* rank) {
    kolo_context* context = nullptr;
    expect_status(init_with({{"rank", rank},
                             {"size", "2"},
                             {"rendezvous", place},
                             {"secret", "the secret of the first job"}},
                            &context),
                  KOLO_OK, "the first job's init");
    std::int64_t value = 1;
    expect_status(
        kolo_allreduce(context, &value, &value, 1, KOLO_INT64, KOLO_SUM, nullptr, nullptr), KOLO_OK,
        "the first job's sum");
    KOLO_EXPECT(value == 2);
    expect_status(kolo_shutdown(context), KOLO_OK, "the first job's shutdown");
  };
  std::thread rank_0(first, "0");
  sleep_ms(300);
  expect_taken("another");
  std::thread rank_1(first, "1");
  rank_0.join();
  rank_1.join();
  return 0;
}

// ---- fork -------------------------------------------------------------------------------------

struct Inherited {
  kolo_context* context;
  kolo_request running;
  kolo_request persistent;
  void* memory;
};

// Every function of kolo.h that takes a context, in a child of the process that made it.
void expect_all_refused(Inherited inherited) {
  kolo_context* const context = inherited.context;
  kolo_request request = inherited.running;
  kolo_request none = KOLO_REQUEST_NULL;
  std::int32_t number = 0;
  std::size_t size = 0;
  float value = 1.0F, result = 0.0F;
  const char* text = nullptr;
  void* memory = nullptr;
  const std::int32_t ranks[] = {0};
  int call = 0;
  const auto refused = [&](kolo_status status) {
    expect_status(status, KOLO_NOT_INITIALIZED, "call " + std::to_string(++call) + " in the child");
    expect_text({"fork"});
  };
  refused(kolo_health(context));
  refused(kolo_info(context, &text));
  refused(kolo_pset_create(context, ranks, 1, &number, nullptr, nullptr));
  refused(kolo_pset_destroy(context, 1, nullptr, nullptr));
  refused(kolo_pset_ranks(context, 0, &number, 1, &size));
  refused(kolo_allreduce(context, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr));
  refused(kolo_allreduce(context, &value, &value, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, &none));
  refused(
      kolo_reduce_scatter(context, &value, &result, 1, KOLO_FLOAT32, KOLO_SUM, nullptr, nullptr));
  refused(kolo_allgather(context, &value, &result, 1, KOLO_FLOAT32, nullptr, nullptr));
  refused(kolo_alltoall(context, &value, &result, 1, KOLO_FLOAT32, nullptr, nullptr));
  refused(kolo_broadcast(context, &value, &value, 1, KOLO_FLOAT32, 0, nullptr, nullptr));
  refused(kolo_barrier(context, nullptr, nullptr));
  refused(kolo_join(context, &number, nullptr, nullptr));
  refused(kolo_alloc(context, 1, &memory));
  refused(kolo_free(context, inherited.memory));
  refused(kolo_group_begin(context, nullptr));
  refused(kolo_group_end(context, nullptr));
  refused(kolo_test(context, &request, &number));
  refused(kolo_wait(context, &request, 0));
  refused(kolo_wait_all(context, &request, 1, KOLO_FOREVER));
  refused(kolo_start(context, &inherited.persistent, 1));
  refused(kolo_request_output(context, request, &memory, &size, nullptr));
  refused(kolo_request_free(context, &request));
  refused(kolo_abort(context, "from a child"));
  refused(kolo_shutdown(context));
  KOLO_EXPECT(kolo_rank(context) == -1 && kolo_size(context) == -1);
  KOLO_EXPECT(kolo_local_rank(context) == -1 && kolo_local_size(context) == -1);
  KOLO_EXPECT(request == inherited.running && none == KOLO_REQUEST_NULL && memory == nullptr);
  kolo_context* again = nullptr;
  expect_status(kolo_init(nullptr, &again), KOLO_INVALID_ARGUMENT, "kolo_init in the child");
  expect_text({"fork"});
}

// The last rank forks while another thread of it waits for what the others have not submitted. Its
// children find every call refused, and end by exit(), with all destructors, by _exit() or by a
// signal; the parent's job goes on.
int fork_after_init() {
  const Job job;
  const bool forks = job.rank() == job.size() - 1;
  job.probe();
  std::vector<float> values(300'000, 1.0F);
  if (!forks) sleep_ms(300);
  kolo_request in_flight = job.submit("in flight", values);
  std::vector<pid_t> ending, killed;
  std::thread waiter;
  if (forks) {
    Inherited inherited{job.context(), in_flight, KOLO_REQUEST_NULL, nullptr};
    float constant = 1.0F;
    kolo_options options = named("prepared");
    options.persistent = 1;
    inherited.persistent = job.submit_raw(options, &constant, 1, KOLO_FLOAT32);
    expect_status(kolo_alloc(job.context(), 100, &inherited.memory), KOLO_OK, "kolo_alloc");
    waiter = std::thread([&] { job.finish(in_flight, KOLO_OK); });
    sleep_ms(50);  // it drives
    for (int i = 0; i < 6; ++i) {
      const pid_t child = ::fork();
      KOLO_EXPECT(child >= 0);
      (i % 3 == 2 ? killed : ending).push_back(child);
      if (child != 0) continue;
      expect_all_refused(inherited);
      if (i % 3 == 0) std::exit(0);
      if (i % 3 == 1) ::_exit(0);
      ::raise(SIGKILL);
    }
  } else {
    waiter = std::thread([&] { job.finish(in_flight, KOLO_OK); });
  }
  waiter.join();
  for (const float value : values) KOLO_EXPECT(value == static_cast<float>(job.size()));
  steps_until_gone(job, std::move(ending), 0);
  steps_until_gone(job, std::move(killed), 128 + SIGKILL);
  job.shutdown();
  return 0;
}

// ---- Begin and end ----------------------------------------------------------------------------

// The last rank comes so late that the others' first init has given up; the next is everybody's.
int init_after_timeout() {
  const bool late = std::atoi(variable("KOLO_RANK").c_str()) == 2;
  if (late) sleep_ms(1400);
  if (!late) {
    kolo_context* context = nullptr;
    const Stopwatch watch;
    expect_status(kolo_init(nullptr, &context), KOLO_TIMED_OUT, "kolo_init");
    watch.expect_between(0.9, 1.4, "kolo_init gave up");  // start timeout 1 s
    expect_text({"rank 2"});
  }
  const Job job;
  job.expect_size(3);
  job.probe();
  job.shutdown();
  return 0;
}

}  // namespace

std::vector<Situation> lifecycle_situations() {
  return {{"S26", s26},
          {"S31", s31},
          {"S31-helper", s31_helper},
          {"S33", s33},
          {"S39", s39},
          {"S74-sizes", s74_sizes},
          {"S74-port", s74_port},
          {"free-place", free_place},
          {"fork", fork_after_init},
          {"init-after-timeout", init_after_timeout}};
}

}  // namespace kolo::cases
