/* Runs one translated program, or MXU passes, outside the process that made them: under an emulator.

   emulated_host program IN OUT
       IN: 64-bit numbers (context words, HBM bytes, count of memories, for each its word and bytes,
       word of HBM, word of the scratch memory, bytes of a thread's own words before it), the
       context, HBM. OUT: status, the context, HBM.
   emulated_host passes IN OUT
       IN: cases, each the number of a form (64 bits), a left side, weights. OUT: results. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern int32_t tpuc_main(void *context);
extern void tpuc_kernel_v1_enter(void *), tpuc_kernel_v1_leave(void *);
extern void tpuc_kernel_v1_matpush(void *target, const void *source);
extern void *tpuc_kernel_v1_pass_pointers[];
typedef void pass(void *out, const void *left, const void *weights, const void *next);
FORM_DECLARATIONS
static pass *const forms[] = {FORM_NAMES};
static const int form_kinds[] = {FORM_KINDS};

static void fail(const char *what) { fprintf(stderr, "emulated host: %s\n", what); exit(2); }
static void take(void *to, size_t size, FILE *in) { if (fread(to, 1, size, in) != size) fail("short input"); }
static void give(const void *from, size_t size, FILE *out) { if (fwrite(from, 1, size, out) != size) fail("cannot write"); }
static int64_t number(FILE *in) { int64_t value; take(&value, 8, in); return value; }
static void *memory(size_t size) {
    void *found = aligned_alloc(4096, (size + 4095) & ~(size_t)4095);
    if (!found) fail("no memory");
    memset(found, 0, size);
    return found;
}

static void run_program(FILE *in, FILE *out) {
    int64_t words = number(in), hbm_bytes = number(in), memories = number(in);
    int64_t *places = memory(16 * memories + 16);
    take(places, 16 * memories, in);
    int64_t hbm_word = number(in), scratch_word = number(in), own_bytes = number(in);
    int64_t *context = memory(8 * words);
    take(context, 8 * words, in);
    for (int64_t i = 0; i < memories; i++)
        context[places[2 * i]] = (int64_t)(intptr_t)memory(places[2 * i + 1]);
    char *scratch = (char *)(intptr_t)context[scratch_word] + own_bytes;
    int64_t own[3] = {context[CARRY_WORD], context[TRANSPOSE_WORD], 0}; /* carried vregs, transpose blocks, their index */
    memcpy(scratch - sizeof own, own, sizeof own);
    context[scratch_word] = (int64_t)(intptr_t)scratch;
    char *hbm = memory(hbm_bytes);
    take(hbm, hbm_bytes, in);
    context[hbm_word] = (int64_t)(intptr_t)hbm;
    for (size_t i = sizeof forms / sizeof *forms; i-- > 0;)
        tpuc_kernel_v1_pass_pointers[form_kinds[i]] = (void *)forms[i];
    int64_t status = tpuc_main(context);
    give(&status, 8, out);
    give(context, 8 * words, out);
    give(hbm, hbm_bytes, out);
}

static void run_passes(FILE *in, FILE *out) {
    char *state = memory(4096), *left = memory(4096), *source = memory(32768), *weights = memory(32768);
    char *result = memory(8192);
    int64_t form;
    while (fread(&form, 1, 8, in) == 8) {
        take(left, 4096, in);
        take(source, 32768, in);
        for (int row = 0; row < 8; row++)
            tpuc_kernel_v1_matpush(weights + 4096 * row, source + 4096 * row);
        tpuc_kernel_v1_enter(state);
        forms[form](result, left, weights, left);
        tpuc_kernel_v1_leave(state);
        give(result, 8192, out);
    }
}

int main(int count, char **arguments) {
    if (count != 4) fail("want: program|passes IN OUT");
    FILE *in = fopen(arguments[2], "rb"), *out = fopen(arguments[3], "wb");
    if (!in || !out) fail("cannot open files");
    if (strcmp(arguments[1], "program") == 0) run_program(in, out);
    else run_passes(in, out);
    if (fclose(out)) fail("cannot write");
    return 0;
}
