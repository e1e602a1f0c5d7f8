#include "tests/chaos/judge.h"

#include <kolo/kolo.h>

#include <algorithm>

namespace kolo::chaos {
namespace {

constexpr std::int64_t kNanosPerMs = 1'000'000;
// Under a sanitizer everything takes several times as long.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr std::int64_t kSlowness = 5;
#else
constexpr std::int64_t kSlowness = 1;
#endif
constexpr std::int64_t kVerdictMs = 1000 * kSlowness;   // after a death
constexpr std::int64_t kToleranceMs = 500 * kSlowness;  // after a silence of the peer timeout
constexpr std::int64_t kShutdownMs = 2000 * kSlowness;
constexpr std::int64_t kLaterMs = 500 * kSlowness;  // "at once", on a machine that is busy

std::string ms_text(std::int64_t ns) { return std::to_string(ns / kNanosPerMs) + " ms"; }

bool names(const std::string& text, int rank) {
  return text.find("rank " + std::to_string(rank)) != std::string::npos;
}

class Judgement {
 public:
  explicit Judgement(const Observed& observed) : seen_(observed), plan_(observed.plan) {}

  std::vector<std::string> run() {
    judge_everybody();
    if (!seen_.struck) {
      say("the moment did not come, or found no victim");
    } else if (plan_.harmless()) {
      for (int rank = 0; rank < plan_.size(); ++rank) expect_well(rank);
      if (plan_.fault == Fault::kDisk) judge_warnings();
    } else if (plan_.fault == Fault::kFail || plan_.fault == Fault::kLimit) {
      judge_bad_start();
    } else {
      for (int rank = 0; rank < plan_.size(); ++rank) judge_loss(rank);
    }
    judge_exit_codes();
    for (const std::string& left : seen_.leftovers) say("left behind: " + left);
    return complaints_;
  }

 private:
  void say(const std::string& text) { complaints_.push_back(text); }
  void say(int rank, const std::string& text) { say("rank " + std::to_string(rank) + ": " + text); }
  [[nodiscard]] const Account& at(int rank) const {
    return seen_.ranks[static_cast<std::size_t>(rank)];
  }
  [[nodiscard]] bool is_killed(int rank) const {
    return is_death() && rank == plan_.victim && seen_.struck;
  }

  // What holds in every trial.
  void judge_everybody() {
    for (int rank = 0; rank < plan_.size(); ++rank) {
      const Account& account = at(rank);
      if (!account.complaint.empty()) say(rank, account.complaint);
      if (is_killed(rank)) continue;
      if (account.phase != Phase::kDone) {
        say(rank, std::string("did not end: ") + word_of(account.phase) + ", after step " +
                      std::to_string(account.steps));
      }
      if (account.shutdown_ns > kShutdownMs * kNanosPerMs) {
        say(rank, "kolo_shutdown took " + ms_text(account.shutdown_ns));
      }
      if (account.later_ns > kLaterMs * kNanosPerMs) {
        say(rank, "a call after the failure took " + ms_text(account.later_ns));
      }
    }
  }

  void expect_well(int rank) {
    const Account& account = at(rank);
    if (account.status != KOLO_OK) say(rank, "must not fail, but: " + account.error);
    if (account.steps == 0) say(rank, "made no step");
  }

  // One a rank at most, and one at all.
  void judge_warnings() {
    const std::string sign = "cannot be written any more";
    int warnings = 0;
    for (std::size_t at = seen_.words.find(sign); at != std::string::npos;
         at = seen_.words.find(sign, at + 1)) {
      ++warnings;
    }
    if (warnings < 1 || warnings > plan_.size()) {
      say(std::to_string(warnings) + " warnings of a full disk");
    }
  }

  // A rank that cannot start costs the job, not its ranks; or nothing, where there is another way.
  void judge_bad_start() {
    for (int rank = 0; rank < plan_.size(); ++rank) {
      const Account& account = at(rank);
      if (account.status == KOLO_OK) continue;
      if (account.status == KOLO_INTERNAL || account.status == KOLO_MISMATCH) {
        say(rank, "not the right kind of error: " + account.error);
      }
      if (account.error.empty()) say(rank, "an error without a text");
      if (account.failed - account.entered > (kStartTimeoutMs + kVerdictMs) * kNanosPerMs) {
        say(rank,
            "was told after " + ms_text(account.failed - account.entered) + ": " + account.error);
      }
    }
    const bool any = std::any_of(seen_.ranks.begin(), seen_.ranks.end(),
                                 [](const Account& rank) { return rank.status != KOLO_OK; });
    const Account& victim = at(plan_.victim);
    if (any && !victim.fired) say("a failure, but no call was made to fail");
    const bool may = victim.status == KOLO_RESOURCE || victim.status == KOLO_TIMED_OUT;
    if (victim.status != KOLO_OK && !may) {
      say(plan_.victim, "lacks something, but says: " + victim.error);
    }
  }

  [[nodiscard]] bool is_death() const {
    return plan_.fault == Fault::kKill || plan_.fault == Fault::kDie;
  }
  [[nodiscard]] bool is_silence() const { return !is_death(); }

  void judge_loss(int rank) {
    const Account& account = at(rank);
    if (is_killed(rank)) return;
    const bool after_all =
        plan_.moment == Moment::kShutdown && account.failed_in == Phase::kShutdown;
    if (account.status == KOLO_OK) {
      if (plan_.moment != Moment::kShutdown) say(rank, "was told of no loss");
      return;
    }
    judge_kind(rank);
    if (after_all) return;
    judge_time(rank);
  }

  void judge_kind(int rank) {
    const Account& account = at(rank);
    const bool is_cut_off = rank == plan_.victim;  // frozen, then continued
    const bool may_time_out = account.failed_in == Phase::kInit &&
                              account.status == KOLO_TIMED_OUT && may_be_missing(account);
    if (account.status != KOLO_PEER_LOST && !may_time_out && !is_cut_off) {
      say(rank, "not a lost peer, but: " + account.error);
    }
    if (is_across_wire(rank)) {
      if (!names_other_side(account.error, rank)) say(rank, "names no lost rank: " + account.error);
    } else if (!is_cut_off && !names(account.error, plan_.victim)) {
      say(rank, "does not name rank " + std::to_string(plan_.victim) + ": " + account.error);
    }
  }

  // Without a launcher nobody knows of the death of a rank that has not come yet; with one, its
  // process has to be known to it.
  [[nodiscard]] bool may_be_missing(const Account& account) const {
    if (plan_.fault != Fault::kDie) return true;
    return !plan_.by_kolorun && (account.error.find("missing rank") != std::string::npos ||
                                 account.error.find("did not meet") != std::string::npos);
  }
  [[nodiscard]] bool is_across_wire(int) const {
    return plan_.fault == Fault::kLink || plan_.fault == Fault::kDrop;
  }
  [[nodiscard]] bool names_other_side(const std::string& text, int rank) const {
    for (int other = 0; other < plan_.size(); ++other) {
      if (plan_.host_of(other) != plan_.host_of(rank) && names(text, other)) return true;
    }
    return false;
  }

  void judge_time(int rank) {
    const Account& account = at(rank);
    const bool waits_for_the_missing = account.status == KOLO_TIMED_OUT;
    if (account.failed_in == Phase::kInit &&
        (plan_.fault != Fault::kDie || waits_for_the_missing)) {
      const std::int64_t took = account.failed - account.entered;
      if (took > (kStartTimeoutMs + kVerdictMs) * kNanosPerMs) {
        say(rank, "init took " + ms_text(took) + ": " + account.error);
      }
      return;
    }
    if (plan_.fault == Fault::kFreeze && rank == plan_.victim) return;
    // Who comes to kolo_init later can be told there only.
    const std::int64_t since =
        account.failed - (plan_.fault == Fault::kDie ? std::max(seen_.fault_began, account.entered)
                                                     : seen_.fault_began);
    const std::int64_t least = is_silence() ? plan_.peer_timeout_ms : 0;
    const std::int64_t most = is_silence() ? plan_.peer_timeout_ms + kToleranceMs : kVerdictMs;
    const std::int64_t slack = seen_.fault_ended - seen_.fault_began;
    if (since < least * kNanosPerMs || since > most * kNanosPerMs + slack) {
      say(rank, "was told after " + ms_text(since) + ": " + account.error);
    }
    if (account.pending_ended > account.failed + kVerdictMs * kNanosPerMs) {
      say(rank, "operations ended " + ms_text(account.pending_ended - account.failed) +
                    " after the first failed");
    }
  }

  void judge_exit_codes() {
    for (std::size_t i = 0; i < seen_.exit_codes.size(); ++i) {
      const int code = seen_.exit_codes[i];
      const bool victims = plan_.by_kolorun || i == static_cast<std::size_t>(plan_.victim);
      const bool killed = is_death() && seen_.struck && victims;
      const bool right = killed ? code == 137 : code == 0;
      if (!right) say("exit code " + std::to_string(code) + " of process " + std::to_string(i));
    }
  }

  const Observed& seen_;
  const Plan& plan_;
  std::vector<std::string> complaints_;
};

}  // namespace

Account account_of(const Cell& cell) {
  Account account;
  account.phase = cell.phase;
  account.steps = cell.steps;
  account.fired = cell.fired != 0;
  account.status = cell.status;
  account.failed_in = cell.failed_in;
  account.entered = cell.entered;
  account.failed = cell.failed;
  account.error = cell.error.get();
  account.pending_ended = cell.pending_ended;
  account.later_ns = cell.later_ns;
  account.shutdown_status = cell.shutdown_status;
  account.shutdown_ns = cell.shutdown_ns;
  account.complaint = cell.complaint.get();
  return account;
}

std::vector<std::string> judge(const Observed& observed) { return Judgement(observed).run(); }

std::vector<Latency> latencies(const Observed& observed) {
  std::vector<Latency> result;
  const Plan& plan = observed.plan;
  for (int rank = 0; rank < plan.size(); ++rank) {
    const Account& account = observed.ranks[static_cast<std::size_t>(rank)];
    if (rank == plan.victim || account.status != KOLO_PEER_LOST) continue;
    if (account.failed_in == Phase::kInit && plan.fault != Fault::kDie) continue;
    const bool later = account.entered > observed.fault_began;
    result.push_back({account.failed - (later ? account.entered : observed.fault_began), later});
  }
  return result;
}

}  // namespace kolo::chaos
