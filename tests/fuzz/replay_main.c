/* Runs a fuzz target over every file of a corpus, and over every prefix of it, without libFuzzer. */
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

enum { LARGEST_PREFIXED = 4096 }; /* a larger file is replayed whole, but not by every prefix */

/* Copies the bytes to a block of exactly their size, so that the sanitizer sees a read past the end. */
static void replay_bytes(const uint8_t *bytes, size_t len)
{
    uint8_t *exact = malloc(len + (len == 0));
    FUZZ_CHECK(exact != NULL);
    if (len > 0)
        memcpy(exact, bytes, len);
    (void)LLVMFuzzerTestOneInput(exact, len);
    free(exact);
}

static void replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat status;
    FUZZ_CHECK(file != NULL && fstat(fileno(file), &status) == 0);
    size_t len = (size_t)status.st_size;
    uint8_t *bytes = malloc(len + 1);
    FUZZ_CHECK(bytes != NULL && fread(bytes, 1, len, file) == len);
    (void)fclose(file);
    for (size_t cut = len <= LARGEST_PREFIXED ? 0 : len; cut <= len; cut++)
        replay_bytes(bytes, cut);
    free(bytes);
}

/* Replays all files of a folder. Returns their number. */
static size_t replay_folder(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, NULL, alphasort);
    if (count < 0) {
        perror(folder);
        return 0;
    }
    size_t replayed = 0;
    for (int i = 0; i < count; i++) {
        char path[4096];
        int n = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        FUZZ_CHECK(n > 0 && (size_t)n < sizeof path);
        if (entries[i]->d_name[0] != '.') {
            (void)fprintf(stderr, "%s\n", path); /* the last one named is the one that failed */
            replay_file(path);
            replayed++;
        }
        free(entries[i]);
    }
    free(entries);
    return replayed;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    size_t replayed = replay_folder(argv[1]);
    (void)fprintf(stderr, "%zu files replayed\n", replayed);
    return replayed > 0 ? 0 : 1;
}
