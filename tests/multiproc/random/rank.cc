#include "tests/multiproc/random/rank.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/multiproc/random/batch.h"

namespace kolo::programs {
namespace {

// Ends the process when nothing has been told for too long.
class Watch {
 public:
  explicit Watch(const Here& here) : here_(here), thread_([this] { watch(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  void tell(const std::string& where) {
    const std::lock_guard lock(mutex_);
    where_ = where;
    ++told_;
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    std::uint64_t seen = told_;
    while (!over_) {
      wake_.wait_for(lock, std::chrono::seconds(kStillSeconds), [this] { return over_; });
      if (!over_ && told_ == seen) fail(here_, "standing still since " + where_);
      seen = told_;
    }
  }

  const Here& here_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  std::uint64_t told_ = 0;
  std::string where_ = "the start";
  std::thread thread_;
};

class Rank {
 public:
  Rank(kolo_context* context, const Dose& dose) : random_(mix(dose.seed) + 1) {
    here_.context = context;
    here_.rank = kolo_rank(context);
    here_.size = kolo_size(context);
    here_.abilities = dose.abilities;
    here_.program = &program_;
    const char* info = "";
    expect(here_, kolo_info(context, &info), KOLO_OK, "kolo_info");
    here_.hosts = nlohmann::json::parse(info).at("hosts").get<std::vector<int>>();
  }

  // The `number`th of the dose.
  void run(const Dose& dose, int number, Watch& watch) {
    const std::uint64_t seed = dose.seed + static_cast<std::uint64_t>(number);
    program_ = draw_program(seed, here_.size, dose.operations, dose.abilities);
    here_.replay = dose.replay + " --seed " + std::to_string(dose.seed) + " --programs " +
                   std::to_string(number + 1) + " --operations " + std::to_string(dose.operations);
    here_.psets.assign(program_.sets.size(), 0);
    random_ = Rng(mix(seed) + static_cast<std::uint64_t>(here_.rank));
    std::uint64_t key = mix(seed);
    for (std::size_t phase = 0; phase < program_.phases.size(); ++phase) {
      watch.tell("phase " + std::to_string(phase) + " of program " + std::to_string(seed));
      key = mix(key);
      run_phase(program_.phases[phase], key);
    }
    persistent_.clear();
  }

  [[nodiscard]] const Here& here() const { return here_; }

 private:
  void run_phase(const Phase& phase, std::uint64_t key) {
    std::thread epoch;
    Rng own(random_.next());
    if (phase.epoch.set >= 0 && place_in(phase.epoch.set) >= 0) {
      epoch = std::thread([this, &phase, key, own] { run_epoch(phase.epoch, key, own); });
    }
    Batch(here_, phase.units, key, {}, persistent_, Rng(random_.next())).run();
    if (random_.chance(10)) intrude();
    if (epoch.joinable()) epoch.join();
  }

  [[nodiscard]] int place_in(int set) const {
    return program_.sets[static_cast<std::size_t>(set)].place_of(here_.rank);
  }

  // A set that this rank is not in.
  void intrude() {
    for (std::size_t set = 1; set < program_.sets.size(); ++set) {
      if (here_.psets[set] == 0 || place_in(static_cast<int>(set)) >= 0) continue;
      kolo_options options = KOLO_OPTIONS_INIT;
      options.pset = here_.psets[set];
      return expect(here_, kolo_barrier(here_.context, &options, nullptr), KOLO_INVALID_ARGUMENT,
                    "a barrier on a set without this rank");
    }
  }

  void run_epoch(const Epoch& epoch, std::uint64_t key, Rng random) {
    const auto place = static_cast<std::size_t>(place_in(epoch.set));
    Persistent none;
    for (std::size_t step = 0; step < epoch.steps_of[place]; ++step) {
      std::vector<bool> present;
      for (const std::size_t steps : epoch.steps_of) present.push_back(steps > step);
      key = mix(key + 1);
      Batch(here_, epoch.steps[step], key, present, none, Rng(random.next())).run();
    }
    join(epoch, random);
  }

  void join(const Epoch& epoch, Rng& random) {
    const SetRanks& set = program_.sets[static_cast<std::size_t>(epoch.set)];
    kolo_options options = KOLO_OPTIONS_INIT;
    options.pset = here_.psets[static_cast<std::size_t>(epoch.set)];
    std::int32_t last = -1;
    kolo_request request = KOLO_REQUEST_NULL;
    const bool blocks = random.chance(50);
    kolo_status status = kolo_join(here_.context, &last, &options, blocks ? nullptr : &request);
    if (!blocks && status == KOLO_OK) status = kolo_wait(here_.context, &request, kLimitMs);
    expect(here_, status, KOLO_OK, "kolo_join of set " + std::to_string(epoch.set));
    check_last(epoch, set, options.pset, last);
  }

  void check_last(const Epoch& epoch, const SetRanks& set, std::int32_t pset, std::int32_t last) {
    if (set.place_of(last) < 0) fail(here_, "the last to join is " + std::to_string(last));
    const std::size_t most = *std::max_element(epoch.steps_of.begin(), epoch.steps_of.end());
    const bool only = std::count(epoch.steps_of.begin(), epoch.steps_of.end(), most) == 1;
    // Its last step could not end before all others had joined.
    const std::size_t steps = epoch.steps_of[static_cast<std::size_t>(set.place_of(last))];
    if (only && steps != most)
      fail(here_, "the last to join is said to be " + std::to_string(last));
    std::vector<std::int32_t> all(set.ranks.size());
    kolo_options options = KOLO_OPTIONS_INIT;
    options.name = epoch.check.c_str();
    options.pset = pset;
    expect(here_,
           kolo_allgather(here_.context, &last, all.data(), 1, KOLO_INT32, &options, nullptr),
           KOLO_OK, "the all-gather after the join");
    for (const std::int32_t other : all) {
      if (other != last) fail(here_, "ranks disagree about who joined last");
    }
  }

  Here here_;
  Program program_;
  Rng random_;
  Persistent persistent_;
};

}  // namespace

void run_programs(kolo_context* context, const Dose& dose) {
  Rank rank(context, dose);
  Watch watch(rank.here());
  for (int number = 0; number < dose.programs; ++number) rank.run(dose, number, watch);
}

}  // namespace kolo::programs
