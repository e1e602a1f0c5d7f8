// KOLO_TIMELINE=dir: a file per rank that a strict parser reads, with every phase of every
// operation; after a kill only the closing bracket may be missing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/multiproc/cases/names.h"
#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using nlohmann::json;

const std::string kKolorun = KOLO_KOLORUN;
const std::string kRanks = KOLO_CASE_RANKS;

Outcome launch(const std::string& timeline, int ranks, const std::string& id) {
  return run({kKolorun, "-np", std::to_string(ranks), "--grace", "2", "-x",
              "KOLO_TIMELINE=" + timeline, kRanks, id});
}

std::map<int, std::string> files_by_rank(const std::string& folder) {
  std::map<int, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    int rank = -1;
    EXPECT_EQ(std::sscanf(entry.path().filename().c_str(), "kolo-rank%d.", &rank), 1);
    EXPECT_TRUE(files.emplace(rank, entry.path()).second) << "two files of rank " << rank;
  }
  return files;
}

// One event a line, apart from the brackets, each a JSON object with a comma between.
void expect_one_event_a_line(const std::string& text, bool complete) {
  std::vector<std::string> lines = lines_of(text);
  ASSERT_GE(lines.size(), 3u);
  EXPECT_EQ(lines.front(), "[");
  if (complete) {
    EXPECT_EQ(lines.back(), "]");
    lines.pop_back();
  }
  for (std::size_t i = 1; i < lines.size(); ++i) {
    std::string line = lines[i];
    if (i + 1 < lines.size()) {
      ASSERT_EQ(line.back(), ',') << line;
    }
    if (line.back() == ',') line.pop_back();
    EXPECT_TRUE(json::accept(line)) << "line " << i << ": " << line;
  }
}

struct Operation {
  std::string name;
  std::vector<std::string> phases;
  std::vector<double> times;
};

std::map<std::uint64_t, Operation> operations_of(const json& events, int rank) {
  std::map<std::uint64_t, Operation> operations;
  for (const json& event : events) {
    EXPECT_EQ(event.at("pid"), rank);
    if (event.at("ph") == "M") continue;
    Operation& operation = operations[event.at("id").get<std::uint64_t>()];
    if (!operation.name.empty()) {
      EXPECT_EQ(operation.name, event.at("name"));
    }
    operation.name = event.at("name");
    operation.phases.push_back(event.at("args").at("phase"));
    operation.times.push_back(event.at("ts"));
  }
  return operations;
}

const std::vector<std::string> kPhases = {"enqueue", "ready", "ordered", "start", "done"};

TEST(Timeline, AllPhasesOfAllOperationsAfterANormalEnd) {
  const TemporaryFolder folder;
  const std::string timeline = folder / "trace";
  const Outcome outcome = launch(timeline, 3, "persistent");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto files = files_by_rank(timeline);
  ASSERT_EQ(files.size(), 3u);
  for (const auto& [rank, path] : files) {
    SCOPED_TRACE(path);
    const std::string text = read_file(path);
    ASSERT_TRUE(json::accept(text));
    expect_one_event_a_line(text, true);
    std::map<std::string, int> runs;
    for (const auto& [id, operation] : operations_of(json::parse(text), rank)) {
      ASSERT_EQ(operation.phases.size() % kPhases.size(), 0u) << operation.name;
      for (std::size_t i = 0; i < operation.phases.size(); ++i) {
        ASSERT_EQ(operation.phases[i], kPhases[i % kPhases.size()]) << operation.name;
      }
      EXPECT_TRUE(std::is_sorted(operation.times.begin(), operation.times.end()));
      runs[operation.name] += static_cast<int>(operation.phases.size() / kPhases.size());
    }
    EXPECT_EQ(runs.size(), 50u);
    for (const auto& [name, count] : runs) EXPECT_EQ(count, name == "p0" ? 101 : 100) << name;
  }
}

TEST(Timeline, FailedOperationsEndToo) {
  const TemporaryFolder folder;
  const std::string timeline = folder / "trace";
  ASSERT_EQ(launch(timeline, 2, "S01").exit_code, 0);
  for (const auto& [rank, path] : files_by_rank(timeline)) {
    const std::string text = read_file(path);
    ASSERT_TRUE(json::accept(text)) << text;
    bool seen = false;
    for (const auto& [id, operation] : operations_of(json::parse(text), rank)) {
      if (operation.name != "g") continue;
      seen = true;
      EXPECT_EQ(operation.phases, (std::vector<std::string>{"enqueue", "ready", "done"}));
    }
    EXPECT_TRUE(seen);
  }
}

TEST(Timeline, AfterAKillOnlyTheClosingBracketIsMissing) {
  const TemporaryFolder folder;
  const std::string timeline = folder / "trace";
  ASSERT_EQ(launch(timeline, 2, "steps-until-killed").exit_code, 137);
  const auto files = files_by_rank(timeline);
  ASSERT_EQ(files.size(), 2u);
  const std::string text = read_file(files.at(1));
  ASSERT_FALSE(json::accept(text));
  ASSERT_TRUE(json::accept(text + "\n]"));
  expect_one_event_a_line(text, false);
  std::set<std::string> names;
  int done = 0;
  for (const json& event : json::parse(text + "]")) {
    names.insert(event.at("name"));
    if (event.contains("args") && event["args"].contains("phase") &&
        event["args"]["phase"] == "done") {
      ++done;
    }
  }
  EXPECT_EQ(done, 400);
  // Bytes that are not ASCII come one by one, as the first 256 code points.
  EXPECT_TRUE(names.contains("bias \"q\"\\\n\x01\u00ff"));
}

// A name as the bytes that it was: a file holds each as the code point of its number.
std::string bytes_of(const std::string& utf8) {
  std::string bytes;
  for (std::size_t i = 0; i < utf8.size(); ++i) {
    const auto lead = static_cast<unsigned char>(utf8[i]);
    if (lead < 0x80) {
      bytes += utf8[i];
    } else {  // U+0080 to U+00FF, two bytes
      const auto low = static_cast<unsigned char>(utf8[++i]);
      bytes += static_cast<char>(static_cast<unsigned char>((lead & 3) << 6 | (low & 63)));
    }
  }
  return bytes;
}

TEST(Situation, S65) {
  const TemporaryFolder folder;
  const std::string timeline = folder / "trace";
  const Outcome outcome = launch(timeline, 2, "S65");
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const auto files = files_by_rank(timeline);
  ASSERT_EQ(files.size(), 2u);
  const std::vector<std::string> names = cases::strange_names();
  for (const auto& [rank, path] : files) {
    const std::string text = read_file(path);
    ASSERT_TRUE(json::accept(text)) << path;
    std::map<std::string, std::size_t> found;
    for (const auto& [id, operation] : operations_of(json::parse(text), rank)) {
      found[bytes_of(operation.name)] += operation.phases.size() / kPhases.size();
    }
    EXPECT_EQ(found.size(), names.size());
    for (const std::string& name : names)
      EXPECT_EQ(found[name], 20u) << ::testing::PrintToString(name);
  }
}

TEST(Timeline, AFolderThatCannotBeMadeIsAClearErrorAtInit) {
  const TemporaryFolder folder;
  const Outcome outcome = launch(folder / "not/there", 2, "S15");
  EXPECT_EQ(outcome.exit_code, 90);
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("timeline: cannot create the folder"));
  EXPECT_THAT(outcome.err, ::testing::HasSubstr("KOLO_TIMELINE"));
}

}  // namespace
}  // namespace kolo::test
