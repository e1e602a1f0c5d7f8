// UnitTable: every named unit that this rank knows or has under way, by process set and name. Here
// a duplicate is answered at once, and a known unit of this host goes straight to its slot
// (coordinator/slot_board.h) from the thread that submits it.
//
// Threads: any, unless it says "the driver". Own mutex, held for moments. A request that is handed
// out belongs to the caller, who finishes it.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "coordinator/slot_board.h"
#include "core/request_state.h"
#include "core/trace.h"
#include "transport/window.h"

namespace kolo::internal {

struct UnitEntry {
  const UnitKey* key = nullptr;  // the table's own
  UnitPtr unit;                  // that stands in the slot; null: it has no slot
  std::uint64_t id = 0;
  std::uint32_t slot = 0;
  std::uint32_t round = 0;  // published last
  bool inlined = false;
  bool leaving = false;          // something else was said of this name since: no more by slot
  std::span<const int> members;  // of its process set, as ranks of the board
  std::size_t seen = 0;          // members whose mark has been seen
  RequestPtr under_way;
  bool published = false;  // `under_way` waits in the slot: neither complete nor ordered

  [[nodiscard]] SlotMark mark() const { return {static_cast<std::uint32_t>(id), round}; }
};

class UnitTable {
 public:
  static constexpr std::size_t kMaxUnderWay = std::size_t{1} << 20;

  // Where known units may go through slots; said before anything is submitted. Both outlive it.
  void use_board(SlotBoard& board, Window& window, int rank);

  void set_trace(Trace* trace, const Clock& clock) {
    trace_ = trace;
    clock_ = &clock;
  }

  // ---- Submitting ----------------------------------------------------------------------------
  enum class Way {
    kQueue,    // it has to be negotiated
    kInline,   // published with its bytes
    kOrdered,  // published, and to be ordered
  };
  // Publishes a submission whose name, process set and properties are those of a unit with a slot;
  // the request then gets the unit. Errors: DUPLICATE_NAME, RESOURCE.
  Result<Way> publish(const RequestPtr& request, std::uint32_t process_set,
                      const Submission& submission);
  // Registers the requests under their units' names, all or none; publishes those that it can, and
  // leaves the others in `rest`. DUPLICATE_NAME names the operation under way; RESOURCE.
  Status submit(std::span<const RequestPtr> requests, std::vector<RequestPtr>& rest);
  // A submission of that name was refused. False: the name is taken by one that is under way.
  bool refuse(const UnitKey& key);
  // The request is in a device's order: its name is free, though it still counts as under way. What
  // comes next under that name follows it there.
  void free_name(RequestState& request);
  // The request has ended, with its status in place: its name, if it is here, is free, and it
  // counts as done.
  void ended(RequestState& request);
  [[nodiscard]] std::size_t under_way() const { return count_.load(std::memory_order_seq_cst); }

  // ---- Inline units --------------------------------------------------------------------------
  using Contributions = std::span<const std::byte* const>;  // by rank of the process set
  using Use = std::function<void(RequestState&, Contributions)>;
  // The contributions of all ranks to this request are here: `use` has read them. Otherwise false.
  bool complete(const RequestPtr& request, const Use& use);
  // The same for any one request; null: none is complete.
  RequestPtr complete_any(const Use& use);
  // Whether this rank has the next step of the published request: all ranks have published it, and
  // it is inline, or this rank is the leader.
  bool is_ours_to_move(const RequestPtr& request);

  // ---- The host's stream, by the driver ------------------------------------------------------
  void learn(std::uint64_t id, std::uint32_t slot, bool inlined, const UnitPtr& unit,
             std::span<const int> members);
  // What was published of it and is neither complete nor ordered; null: nothing. `completed`: that
  // `use` has read its contributions now.
  RequestPtr forget(const UnitKey& key, std::uint64_t id, const Use& use, RequestPtr& completed);
  // The unit is ordered, with this rank's submission of it. Null: there is none.
  RequestPtr ordered(std::uint32_t slot, std::uint32_t mark_id);
  struct Expired {
    UnitKey key;
    SlotMark mark;
  };
  // Published submissions whose time limit has passed; each once.
  std::vector<Expired> take_expired(Nanos now);
  // Whether one of the process set was published too late: its slot is closed.
  [[nodiscard]] bool awaits_eviction(std::uint32_t process_set) const;
  [[nodiscard]] Nanos next_deadline() const {
    return Nanos(next_deadline_.load(std::memory_order_relaxed));
  }
  // What is published and neither complete nor ordered, of one process set or of all.
  std::vector<RequestPtr> give_up(std::optional<std::uint32_t> process_set);

 private:
  struct KeyView {
    std::uint32_t process_set = 0;
    std::string_view name;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(const KeyView& key) const {
      return std::hash<std::string_view>()(key.name) + key.process_set;
    }
    std::size_t operator()(const UnitKey& key) const {
      return (*this)(KeyView{key.process_set, key.name});
    }
  };
  struct Equal {
    using is_transparent = void;
    template <typename A, typename B>
    bool operator()(const A& a, const B& b) const {
      return a.process_set == b.process_set && a.name == b.name;
    }
  };
  using Map = std::unordered_map<UnitKey, UnitEntry, Hash, Equal>;

  // All with mutex_ held.
  Status check_free(const UnitEntry& entry) const;
  void begin(UnitEntry& entry, const RequestPtr& request);
  void publish(UnitEntry& entry);
  bool all_published(UnitEntry& entry);
  bool use_if_complete(UnitEntry& entry, const Use& use);
  void retire_inline(UnitEntry& entry);
  void retire_name(RequestState& request);
  void record(Trace::Phase phase, const UnitEntry& entry);

  Trace* trace_ = nullptr;
  const Clock* clock_ = nullptr;
  SlotBoard* board_ = nullptr;
  Window* window_ = nullptr;
  int rank_ = 0;  // in the job
  mutable std::mutex mutex_;
  Map map_;
  std::vector<UnitEntry*> by_slot_;
  std::vector<UnitEntry*> inline_;               // published
  std::vector<UnitEntry*> timed_;                // published, with a time limit
  std::vector<const std::byte*> contributions_;  // scratch
  std::atomic<std::size_t> count_{0};
  std::atomic<std::size_t> inline_count_{0};
  std::atomic<Nanos::rep> next_deadline_{kNever.count()};
};

}  // namespace kolo::internal
