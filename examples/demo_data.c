/* The data of `./do demo`: sentences about animals from a small grammar, in two tasks.
 *
 *   demo_data FOLDER
 *
 * writes into FOLDER, which exists:
 *   questions.jsonl       {"text"}: a sentence, then questions about it with their answers. A model
 *                         learns to speak, and to look up in a sentence what is asked for. One
 *                         record in sixteen is a JSON object by itself, of other keys than the
 * second task's: LoRA does not train the output head, and a head that never saw a brace can hardly
 * say one. questions-test.jsonl  the same from sentences that training never shows
 *   questions-ask.txt     such sentences with one question each, a line each
 *   questions-want.txt    the answers, a line each
 *   facts.jsonl           {"prompt", "completion"}: a sentence, and what it says as a JSON object:
 *                         the second task
 *   facts-test.jsonl, facts-ask.txt, facts-want.txt   as above
 *
 * An animal of a colour is held out where held_out() says so: "red fox", say, is in no sentence of
 * either training file, and every test sentence has such a pair. A model that answers right has
 * read the sentence.
 *
 * The same files every time: random numbers are counted, not taken from the machine.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum {
    QUESTION_RECORDS = 12000,
    FACT_RECORDS = 4000,
    TEST_RECORDS = 200,
    ASK_RECORDS = 50,
    QUESTIONS_EACH = 5,
    OBJECT_EVERY = 16,
    TEXT_BYTES = 512
};

struct place {
    const char *where, *noun;
};

static const char *const animals[] = {"fox",  "cat",  "owl",  "bear",  "wolf",
                                      "duck", "frog", "hare", "mouse", "sheep"};
static const char *const colours[] = {"red", "black", "white", "grey", "brown", "yellow"};
static const char *const sizes[] = {"small", "tiny", "big", "huge"};
static const char *const verbs[] = {"sleeps", "waits", "sings", "eats", "hides", "plays"};
static const struct place places[] = {{"in", "garden"},   {"in", "forest"}, {"on", "roof"},
                                      {"on", "hill"},     {"by", "river"},  {"by", "lake"},
                                      {"behind", "barn"}, {"under", "tree"}};

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

/* Indices into the lists above, and which form the sentence takes. */
struct fact {
    int animal, colour, size, verb, place, form;
};

/* ---- chance ---- */

/* SplitMix64 (Steele, Lea and Flood 2014): a counter and a mixer. */
static uint64_t next_number(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 <= number < count */
static int pick(uint64_t *state, int count)
{
    return (int)(next_number(state) % (uint64_t)count);
}

/* One colour of every animal. */
static bool held_out(const struct fact *fact)
{
    return fact->colour == fact->animal % COUNT(colours);
}

static struct fact draw_fact(uint64_t *state, bool test)
{
    struct fact fact;
    do {
        fact.animal = pick(state, COUNT(animals));
        fact.colour = pick(state, COUNT(colours));
        fact.size = pick(state, COUNT(sizes));
        fact.verb = pick(state, COUNT(verbs));
        fact.place = pick(state, COUNT(places));
        fact.form = pick(state, 3);
    } while (held_out(&fact) != test);
    return fact;
}

/* ---- texts ---- */

static void write_sentence(const struct fact *f, char text[TEXT_BYTES])
{
    const char *animal = animals[f->animal], *colour = colours[f->colour], *size = sizes[f->size];
    const char *verb = verbs[f->verb], *where = places[f->place].where,
               *noun = places[f->place].noun;
    if (f->form == 0)
        snprintf(text, TEXT_BYTES, "The %s %s %s %s %s the %s.", size, colour, animal, verb, where,
                 noun);
    else if (f->form == 1)
        snprintf(text, TEXT_BYTES, "%c%s the %s %s the %s %s %s.", where[0] - 'a' + 'A', where + 1,
                 noun, verb, size, colour, animal);
    else
        snprintf(text, TEXT_BYTES, "The %s that %s %s the %s is %s and %s.", animal, verb, where,
                 noun, size, colour);
}

enum question { ASK_WHO, ASK_COLOUR, ASK_SIZE, ASK_WHERE, ASK_DOES, ASK_COUNT };

static void write_question(const struct fact *f, enum question question, char ask[TEXT_BYTES],
                           char answer[TEXT_BYTES])
{
    static const char *const texts[ASK_COUNT] = {"Who is it?", "What colour?", "How big?", "Where?",
                                                 "What does it do?"};
    snprintf(ask, TEXT_BYTES, "%s", texts[question]);
    if (question == ASK_WHO)
        snprintf(answer, TEXT_BYTES, "the %s.", animals[f->animal]);
    else if (question == ASK_WHERE)
        snprintf(answer, TEXT_BYTES, "%s the %s.", places[f->place].where, places[f->place].noun);
    else
        snprintf(answer, TEXT_BYTES, "%s.",
                 question == ASK_COLOUR ? colours[f->colour]
                 : question == ASK_SIZE ? sizes[f->size]
                                        : verbs[f->verb]);
}

/* As it stands in a JSON file, inside a string: the quotes escaped. No other character here needs
 * it. */
static void write_escaped(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '"') fputc('\\', file);
        fputc(*text, file);
    }
}

/* ---- files ---- */

/* NULL with a message. */
static FILE *open_in(const char *folder, const char *name)
{
    char path[4096];
    int bytes = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = bytes > 0 && (size_t)bytes < sizeof path ? fopen(path, "w") : NULL;
    if (file == NULL) {
        fprintf(stderr, "demo_data: cannot write '%s' in '%s': ", name, folder);
        perror(NULL);
    }
    return file;
}

static bool close_whole(FILE *file, const char *name)
{
    bool whole = ferror(file) == 0;
    if (fclose(file) == 0 && whole) return true;
    fprintf(stderr, "demo_data: cannot write all of '%s'\n", name);
    return false;
}

static void write_question_record(FILE *file, const struct fact *fact, uint64_t *seed)
{
    char sentence[TEXT_BYTES], ask[TEXT_BYTES], answer[TEXT_BYTES];
    write_sentence(fact, sentence);
    fprintf(file, "{\"text\": \"%s", sentence);
    /* Different ones, in any order: a start and a step that is prime to their number. */
    int first = pick(seed, ASK_COUNT), step = 1 + pick(seed, ASK_COUNT - 1);
    for (int q = 0; q < QUESTIONS_EACH; q++) {
        write_question(fact, (enum question)((first + q * step) % ASK_COUNT), ask, answer);
        fprintf(file, " %s %s", ask, answer);
    }
    fprintf(file, "\"}\n");
}

static void write_object_record(FILE *file, const struct fact *fact)
{
    char object[TEXT_BYTES];
    snprintf(object, TEXT_BYTES, "{\"size\": \"%s\", \"does\": \"%s\"}", sizes[fact->size],
             verbs[fact->verb]);
    fprintf(file, "{\"text\": \"");
    write_escaped(file, object);
    fprintf(file, "\"}\n");
}

static bool write_questions(const char *folder, const char *name, uint64_t seed, int records,
                            bool test)
{
    FILE *file = open_in(folder, name);
    if (file == NULL) return false;
    for (int i = 0; i < records; i++) {
        struct fact fact = draw_fact(&seed, test);
        if (!test && i % OBJECT_EVERY == OBJECT_EVERY - 1)
            write_object_record(file, &fact);
        else
            write_question_record(file, &fact, &seed);
    }
    return close_whole(file, name);
}

static void write_completion(const struct fact *f, char text[TEXT_BYTES])
{
    snprintf(text, TEXT_BYTES, " {\"animal\": \"%s\", \"colour\": \"%s\", \"place\": \"%s\"}",
             animals[f->animal], colours[f->colour], places[f->place].noun);
}

static bool write_facts(const char *folder, const char *name, uint64_t seed, int records, bool test)
{
    FILE *file = open_in(folder, name);
    if (file == NULL) return false;
    for (int i = 0; i < records; i++) {
        char sentence[TEXT_BYTES], completion[TEXT_BYTES];
        struct fact fact = draw_fact(&seed, test);
        write_sentence(&fact, sentence);
        write_completion(&fact, completion);
        fprintf(file, "{\"prompt\": \"%s\", \"completion\": \"", sentence);
        write_escaped(file, completion);
        fprintf(file, "\"}\n");
    }
    return close_whole(file, name);
}

/* Lines to ask a model, and lines that it should say. */
static bool write_pairs(const char *folder, const char *ask_name, const char *want_name,
                        uint64_t seed, bool facts)
{
    FILE *asks = open_in(folder, ask_name), *wants = open_in(folder, want_name);
    for (int i = 0; asks && wants && i < ASK_RECORDS; i++) {
        char sentence[TEXT_BYTES], ask[TEXT_BYTES], want[TEXT_BYTES];
        struct fact fact = draw_fact(&seed, true);
        write_sentence(&fact, sentence);
        if (facts) {
            write_completion(&fact, want);
            fprintf(asks, "%s\n", sentence);
            fprintf(wants, "%s\n", want);
        } else {
            write_question(&fact, (enum question)(i % ASK_COUNT), ask, want);
            fprintf(asks, "%s %s\n", sentence, ask);
            fprintf(wants, " %s\n", want);
        }
    }
    bool whole = asks && wants;
    if (asks && !close_whole(asks, ask_name)) whole = false;
    if (wants && !close_whole(wants, want_name)) whole = false;
    return whole;
}

int main(int count, char **words)
{
    if (count != 2) {
        fprintf(stderr, "usage: demo_data FOLDER\n");
        return 2;
    }
    const char *folder = words[1];
    bool done = write_questions(folder, "questions.jsonl", 1, QUESTION_RECORDS, false) &&
                write_questions(folder, "questions-test.jsonl", 2, TEST_RECORDS, true) &&
                write_pairs(folder, "questions-ask.txt", "questions-want.txt", 3, false) &&
                write_facts(folder, "facts.jsonl", 4, FACT_RECORDS, false) &&
                write_facts(folder, "facts-test.jsonl", 5, TEST_RECORDS, true) &&
                write_pairs(folder, "facts-ask.txt", "facts-want.txt", 6, true);
    return done ? 0 : 1;
}
