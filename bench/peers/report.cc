#include "bench/peers/report.h"

#include <algorithm>
#include <ostream>

#include "bench/common/statistics.h"
#include "bench/common/text.h"

namespace kolo::bench {
namespace {

// Where ranks outnumber cores, a rank that spins or misses its wake-up holds the others up until
// the scheduler's next tick: milliseconds for what takes microseconds.
constexpr double kTickUs = 1000;
constexpr std::size_t kSmallBytes = std::size_t{1} << 20;

double smallest(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

double largest(const std::vector<double>& values) {
  return *std::max_element(values.begin(), values.end());
}

std::string ratio_text(const std::vector<Row>& rows, const Row& row) {
  const auto ratio = ratio_to_kolo(rows, row);
  return ratio ? format("%10.2f", *ratio) : format("%10s", "");
}

}  // namespace

std::optional<double> ratio_to_kolo(const std::vector<Row>& rows, const Row& row) {
  if (row.system == "kolo") return std::nullopt;
  const auto kolo = std::find_if(rows.begin(), rows.end(), [&](const Row& other) {
    return other.system == "kolo" && other.bytes == row.bytes;
  });
  if (kolo == rows.end()) return std::nullopt;
  return median(kolo->rounds_us) / median(row.rounds_us);
}

std::string note_on(const Row& row, int ranks, unsigned cores) {
  const bool crowded = static_cast<unsigned>(ranks) > cores;
  if (!crowded || row.bytes > kSmallBytes || median(row.rounds_us) < kTickUs) return {};
  return "collapse: " + std::to_string(ranks) + " ranks on " + std::to_string(cores) +
         " cores wait for scheduler ticks";
}

void print_table(std::ostream& out, const Settings& settings, unsigned cores,
                 const std::vector<Row>& rows) {
  const bool latency = settings.mode == Work::Mode::kLatency;
  out << "# " << (latency ? "single blocking calls" : "blocking calls back to back")
      << ", f32 sum in place, loopback TCP; " << settings.ranks << " ranks on " << cores
      << " cores; " << settings.rounds << " interleaved rounds\n";
  if (latency) {
    out << "#     size  system       p50       min       max       p99  kolo/peer\n"
        << "#      (B)              (us)      (us)      (us)      (us)      (p50)\n";
  } else {
    out << "#     size       count  system      time       min       max   algbw   busbw  "
           "kolo/peer\n"
        << "#      (B)  (elements)              (us)      (us)      (us)  (GB/s)  (GB/s)     "
           "(time)\n";
  }
  bool noted = false;
  for (const Row& row : rows) {
    const double us = median(row.rounds_us);
    const std::string times =
        format("%9.1f %9.1f %9.1f", us, smallest(row.rounds_us), largest(row.rounds_us));
    if (latency) {
      out << format("%10zu  %-6s ", row.bytes, row.system.c_str()) << times
          << format(" %9.1f", median(row.rounds_p99_us));
    } else {
      const double algbw = static_cast<double>(row.bytes) / us * 1e-3;
      const double busbw = algbw * 2 * (settings.ranks - 1) / settings.ranks;
      out << format("%10zu %11zu  %-6s ", row.bytes, row.bytes / sizeof(float), row.system.c_str())
          << times << format(" %7.2f %7.2f", algbw, busbw);
    }
    const std::string note = note_on(row, settings.ranks, cores);
    noted = noted || !note.empty();
    out << " " << ratio_text(rows, row) << (note.empty() ? "" : "  # " + note) << "\n";
  }
  if (noted) out << "# A ratio to a system that collapses is no merit of the other's.\n";
  out << std::flush;
}

void print_json(std::ostream& out, const Settings& settings, unsigned cores,
                const std::vector<Row>& rows) {
  const bool latency = settings.mode == Work::Mode::kLatency;
  for (const Row& row : rows) {
    nlohmann::json line = {{"bench", latency ? "allreduce_latency" : "allreduce"},
                           {"ranks", settings.ranks},
                           {"cores", cores},
                           {"system", row.system},
                           {"bytes", row.bytes},
                           {"median_us", median(row.rounds_us)},
                           {"min_us", smallest(row.rounds_us)},
                           {"max_us", largest(row.rounds_us)},
                           {"rounds_us", row.rounds_us}};
    if (latency) line["p99_us"] = median(row.rounds_p99_us);
    if (const auto ratio = ratio_to_kolo(rows, row)) line["kolo_over_peer"] = *ratio;
    const std::string note = note_on(row, settings.ranks, cores);
    if (!note.empty()) line["note"] = note;
    out << line.dump() << "\n";
  }
  out << std::flush;
}

}  // namespace kolo::bench
