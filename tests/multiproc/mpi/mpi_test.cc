// MPI as a road and mpiexec as a launcher, end to end: real ranks, with and without MPI of their
// own. What is missing on this machine is skipped, with the reason.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/multiproc/launcher/process.h"

namespace kolo::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

#ifdef KOLO_MPIEXEC
const std::string kMpiexec = KOLO_MPIEXEC;
#else
const std::string kMpiexec;
#endif
#ifdef KOLO_MPI_TRAINER
const std::string kTrainer = KOLO_MPI_TRAINER;
const std::string kModule = KOLO_MPI_MODULE;
#else
const std::string kTrainer;
const std::string kModule;
#endif
const std::string kRank = KOLO_MPI_RANK;

#define NEED_MPIEXEC() \
  if (kMpiexec.empty()) GTEST_SKIP() << "no mpiexec.hydra here (Debian package mpich)"
#define NEED_MPICH() \
  NEED_MPIEXEC();    \
  if (kTrainer.empty()) GTEST_SKIP() << "built without MPICH (Debian package libmpich-dev)"

RunOptions over(const std::string& transport) {
  RunOptions options;
  options.timeout_seconds = 60;
  options.environment = {{"KOLO_TRANSPORT", transport}, {"KOLO_START_TIMEOUT_MS", "20000"}};
  return options;
}

Outcome mpiexec(int ranks, std::vector<std::string> program, const RunOptions& options) {
  program.insert(program.begin(), {kMpiexec, "-n", std::to_string(ranks)});
  return run(program, options);
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) {
    ++found;
  }
  return found;
}

std::string all_of(const Outcome& outcome) { return outcome.out + outcome.err; }

// ---- mpiexec as a launcher of programs without MPI

TEST(Pmi, RanksOfMpiexecMeetWithoutMpi) {
  NEED_MPIEXEC();
  for (const int ranks : {1, 2, 4}) {
    const Outcome outcome = mpiexec(ranks, {kRank, "sums"}, over("tcp"));
    EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string place = std::to_string(rank) + " of " + std::to_string(ranks);
      EXPECT_THAT(outcome.out, HasSubstr("rank " + place + ", local " + place));
    }
    EXPECT_EQ(outcome.err, "");
  }
}

TEST(Pmi, AJobMayMeetAgain) {
  NEED_MPIEXEC();
  const Outcome outcome = mpiexec(3, {kRank, "twice"}, over("tcp"));
  EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
  EXPECT_EQ(count(outcome.out, ", local "), 6u);
}

// mpiexec ends the job of a rank that has spoken to it and left without a farewell.
TEST(Pmi, ARankThatEndsFirstEndsNobodyElse) {
  NEED_MPIEXEC();
  const Outcome outcome = mpiexec(3, {kRank, "late"}, over("tcp"));
  EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("rank 0 ends"));
  EXPECT_EQ(count(outcome.out, "ends"), 3u);
}

TEST(Pmi, AnExitCodeIsTheRanksOwn) {
  NEED_MPIEXEC();
  const Outcome outcome = mpiexec(3, {kRank, "fails"}, over("tcp"));
  EXPECT_EQ(outcome.exit_code, 7) << all_of(outcome);
  EXPECT_EQ(count(outcome.out, "ends"), 3u);
}

TEST(Pmi, AnMpiProgramNeedsNoMpiRoad) {
  NEED_MPICH();
  for (const char* level : {"single", "multiple"}) {
    const Outcome outcome = mpiexec(2, {kTrainer, level}, over("tcp"));
    // At a low level the program's own use of MPI beside kolo is what would be wrong, and MPICH
    // does not mind; kolo does not use MPI there.
    EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
  }
}

// ---- MPI as a road

TEST(MpiRoad, CarriesTheSumsOfAProgramWithoutMpi) {
  NEED_MPICH();
  for (const int ranks : {1, 2, 4}) {
    const Outcome outcome = mpiexec(ranks, {kRank, "sums"}, over("mpi"));
    EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
    if (ranks > 1) {
      EXPECT_EQ(count(outcome.out, "\"road\":\"mpi\""), static_cast<std::size_t>(ranks))
          << outcome.out;
    }
    EXPECT_EQ(outcome.err, "");
  }
}

// All ranks see it, whoever is the odd one: nobody waits for the start timeout.
TEST(MpiRoad, RanksThatDisagreeAboutItAreToldAtOnce) {
  NEED_MPICH();
  for (const auto& [first, second] : {std::pair("mpi", "tcp"), {"tcp", "mpi"}}) {
    const Outcome outcome =
        run({kMpiexec, "-n", "1", "-env", "KOLO_TRANSPORT", first, kTrainer, "multiple", ":", "-n",
             "1", "-env", "KOLO_TRANSPORT", second, kTrainer, "multiple"},
            over("auto"));
    EXPECT_NE(outcome.exit_code, 0);
    EXPECT_LT(outcome.seconds, 10);
    EXPECT_THAT(all_of(outcome), HasSubstr("transport is " + std::string(second) + " on rank 1"));
    EXPECT_THAT(all_of(outcome), HasSubstr("set KOLO_TRANSPORT alike for all ranks"));
  }
}

TEST(MpiRoad, EveryAlgorithm) {
  NEED_MPICH();
  for (const char* algorithm : {"direct", "ring"}) {
    RunOptions options = over("mpi");
    options.environment["KOLO_ALGORITHM"] = algorithm;
    const Outcome outcome = mpiexec(3, {kRank, "sums"}, options);
    EXPECT_EQ(outcome.exit_code, 0) << algorithm << all_of(outcome);
  }
}

TEST(MpiRoad, ComesAndGoesWithEachContext) {
  NEED_MPICH();
  const Outcome outcome = mpiexec(2, {kRank, "twice"}, over("mpi"));
  EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
}

TEST(MpiRoad, MayBeLeftAtDifferentTimes) {
  NEED_MPICH();
  const Outcome outcome = mpiexec(3, {kRank, "late"}, over("mpi"));
  EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
  EXPECT_EQ(count(outcome.out, "ends"), 3u);
}

// Two hosts by name; all of it is this machine.
TEST(MpiRoad, GoesTogetherWithSharedMemory) {
  NEED_MPICH();
  const std::pair<const char*, const char*> roads[] = {
      {"mpi", "mpi"}, {"shm+mpi", "shm+mpi"}, {"tcp", "tcp"}, {"auto", "shm+tcp"}};
  for (const auto& [transport, road] : roads) {
    RunOptions options = over(transport);
    options.environment["KOLO_ADDRESSES"] = "127.0.0.1";
    const Outcome outcome = run(
        {kMpiexec, "-launcher", "fork", "-hosts", "one,two", "-ppn", "2", "-n", "4", kRank, "sums"},
        options);
    EXPECT_EQ(outcome.exit_code, 0) << transport << all_of(outcome);
    EXPECT_EQ(count(outcome.out, "\"hosts\":[0,0,1,1]"), 4u) << outcome.out;
    EXPECT_EQ(count(outcome.out, "\"road\":\"" + std::string(road) + "\""), 4u) << outcome.out;
  }
}

// ---- Programs that use MPI themselves

TEST(MpiTrainer, MayUseMpiBesideKoloAndAfterIt) {
  NEED_MPICH();
  for (const char* when : {"multiple", "later"}) {
    const Outcome outcome = mpiexec(2, {kTrainer, when}, over("mpi"));
    EXPECT_EQ(outcome.exit_code, 0) << when << all_of(outcome);
    EXPECT_EQ(count(outcome.out, "done"), 2u) << when;
  }
}

TEST(MpiTrainer, ALowerThreadLevelIsRefusedWithTheCure) {
  NEED_MPICH();
  const std::pair<const char*, const char*> levels[] = {{"single", "MPI_THREAD_SINGLE"},
                                                        {"funneled", "MPI_THREAD_FUNNELED"},
                                                        {"serialized", "MPI_THREAD_SERIALIZED"}};
  for (const auto& [level, name] : levels) {
    const Outcome outcome = mpiexec(2, {kTrainer, level}, over("mpi"));
    EXPECT_EQ(outcome.exit_code, 3) << level << all_of(outcome);
    EXPECT_THAT(outcome.out, HasSubstr("refused"));
    EXPECT_THAT(outcome.out, HasSubstr(name));
    EXPECT_THAT(outcome.out,
                HasSubstr("call MPI_Init_thread(MPI_THREAD_MULTIPLE) before kolo_init"));
  }
}

TEST(MpiTrainer, MpiThatIsOverIsRefusedWithTheCure) {
  NEED_MPICH();
  RunOptions options = over("mpi");
  const Outcome outcome = mpiexec(2, {kTrainer, "finalized"}, options);
  EXPECT_EQ(outcome.exit_code, 3) << all_of(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("MPI_Finalize"));
}

// ---- What does not fit

TEST(MpiRoad, RanksOfAnotherLauncherAreToldSo) {
  NEED_MPICH();
  const Outcome outcome = run(
      {KOLO_KOLORUN, "-np", "2", "/usr/bin/env", "KOLO_TRANSPORT=mpi", kRank, "sums"}, over("tcp"));
  EXPECT_EQ(outcome.exit_code, 1) << all_of(outcome);
  EXPECT_THAT(outcome.err, HasSubstr("this job has 2 ranks, and MPI's world has 1"));
  EXPECT_THAT(outcome.err, HasSubstr("kolorun --transport mpi"));
}

// ---- kolorun --transport

Outcome kolorun(int ranks, std::vector<std::string> words, const RunOptions& options = {}) {
  words.insert(words.begin(), {KOLO_KOLORUN, "-np", std::to_string(ranks)});
  return run(words, options);
}

TEST(Kolorun, StartsRanksInMpisWorld) {
  NEED_MPICH();
  for (const int ranks : {2, 4}) {
    const Outcome outcome = kolorun(ranks, {"--transport", "mpi", kRank, "sums"});
    EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
    EXPECT_EQ(outcome.err, "");
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string number = std::to_string(rank);
      EXPECT_THAT(outcome.out, HasSubstr("[" + number + "] rank " + number));
    }
    EXPECT_EQ(count(outcome.out, "\"road\":\"mpi\""), static_cast<std::size_t>(ranks));
  }
}

TEST(Kolorun, KeepsExitCodesOverMpi) {
  NEED_MPICH();
  const Outcome outcome = kolorun(3, {"--transport", "mpi", kRank, "fails"});
  EXPECT_EQ(outcome.exit_code, 7) << all_of(outcome);
  EXPECT_EQ(count(outcome.out, "ends"), 3u);
  EXPECT_THAT(outcome.err, HasSubstr("rank 2 on localhost"));
  const Outcome plain = kolorun(2, {"--transport", "mpi", "/bin/sh", "-c", "exit 4"});
  EXPECT_EQ(plain.exit_code, 4) << all_of(plain);
}

// mpiexec alone would end everybody.
TEST(Kolorun, SurvivorsSeeALossOverMpi) {
  NEED_MPICH();
  const Outcome outcome = kolorun(3, {"--transport", "mpi", kRank, "hangs-up"});
  EXPECT_EQ(outcome.exit_code, 128 + 9) << all_of(outcome);
  EXPECT_THAT(all_of(outcome), HasSubstr("rank 2 on localhost is lost"));
  EXPECT_THAT(outcome.err, Not(HasSubstr("Broken pipe")));
  EXPECT_THAT(outcome.err, Not(HasSubstr("MPI_Finalize")));
}

TEST(Kolorun, PassesSignalsOnOverMpi) {
  NEED_MPICH();
  const TemporaryFolder folder;
  const std::string script =
      folder.script("wait", "trap 'echo got it; exit 9' TERM\necho x >> " + (folder / "up") +
                                "\nwhile :; do sleep 0.05; done\n");
  Child child({KOLO_KOLORUN, "-np", "1", "--transport", "mpi", script}, {});
  ASSERT_TRUE(wait_for_file(folder / "up", 20));
  child.signal(SIGTERM);
  const Outcome outcome = child.wait();
  EXPECT_EQ(outcome.exit_code, 9) << all_of(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("got it"));
}

TEST(Kolorun, OtherTransportsNeedNoMpiexec) {
  const Outcome outcome = kolorun(2, {"--transport", "tcp", kRank, "sums"});
  EXPECT_EQ(outcome.exit_code, 0) << all_of(outcome);
  EXPECT_THAT(outcome.out, HasSubstr("\"road\":\"tcp\""));
}

TEST(Kolorun, SaysWhatItLacks) {
  RunOptions options;
  options.environment = {{"PATH", "/nowhere"}};
  const Outcome missing = kolorun(2, {"--transport", "mpi", kRank, "sums"}, options);
  EXPECT_EQ(missing.exit_code, 2) << all_of(missing);
  EXPECT_THAT(missing.err, HasSubstr("Debian package mpich"));
  const Outcome hosts = run({KOLO_KOLORUN, "-H", "a:1,b:1", "--transport", "mpi", kRank, "sums"});
  EXPECT_EQ(hosts.exit_code, 2) << all_of(hosts);
  EXPECT_THAT(hosts.err, HasSubstr("mpiexec.hydra -hosts"));
  const Outcome unknown = kolorun(2, {"--transport", "carrier", kRank, "sums"});
  EXPECT_EQ(unknown.exit_code, 2) << all_of(unknown);
  EXPECT_THAT(unknown.err, HasSubstr("auto shm tcp mpi shm+mpi"));
}

// ---- What libraries need

Outcome needed_by(const std::string& library) {
  return run({"/bin/sh", "-c", "exec readelf -d \"$0\"", library});
}

TEST(MpiRoad, TheLibraryItselfNeedsNoMpiAndNoGpu) {
  const Outcome outcome = needed_by(KOLO_LIBRARY);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("NEEDED"));
  for (const char* optional : {"[libmpi", "[libcuda", "[libnccl"}) {
    EXPECT_THAT(outcome.out, Not(HasSubstr(optional)));
  }
  if (kModule.empty()) return;
  const Outcome module = needed_by(kModule);
  EXPECT_THAT(module.out, HasSubstr("libmpich"));
}

}  // namespace
}  // namespace kolo::test
