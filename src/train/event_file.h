/* Event files: a run's numbers as TensorBoard reads them.
 *
 * A file is a row of records, each framed as TensorFlow's TFRecord is (its record_writer.h):
 *
 *   uint64 bytes | uint32 mask(crc(bytes)) | data [bytes] | uint32 mask(crc(data))
 *
 * lowest byte first; crc is CRC-32C and mask(c) = (c rotated right by 15) + 0xa282ead8. The data is
 * a protobuf message `Event` (event.proto, summary.proto), of which a file here has
 *
 *   Event       wall_time = 1 double, step = 2 int64, and one of file_version = 3 string,
 *               summary = 5 Summary, session_log = 7 SessionLog
 *   Summary     value = 1 repeated { tag = 1 string, simple_value = 2 float }
 *   SessionLog  status = 1 enum; 1 is START
 *
 * The first record holds the version, the second says that a session starts at a step: what older
 * files in the folder have from that step on TensorBoard does not draw. So a folder is one run,
 * however often it was resumed.
 *
 * A record is in the file whole or not at all. One thread.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef EBB_EVENT_FILE_H
#define EBB_EVENT_FILE_H

#include <jansson.h>

#include "base/context.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EBB_EVENT_FILE_PREFIX "events.out.tfevents."

struct ebb_event_file;
/* Makes `dir` where it is missing, and in it PREFIX SECONDS.HOST.PID.N, where N is the first number
 * that makes it a new file. `first` is the first step that will be in it. The caller closes. */
enum ebb_status ebb_event_file_open(struct ebb_ctx *ctx, const char *dir, int64_t first,
                                    struct ebb_event_file **file);
/* A record of metrics.jsonl as one event of its step. Each finite number but "step" is a value, by
 * transformers' names: "eval_loss" is "eval/loss", and of a step "loss" is "train/loss". "epoch" is
 * taken of steps alone. A record without such a number adds nothing. */
enum ebb_status ebb_event_file_add(struct ebb_event_file *file, const json_t *record);
/* To the disk. */
enum ebb_status ebb_event_file_flush(struct ebb_event_file *file);
const char *ebb_event_file_path(const struct ebb_event_file *file);
void ebb_event_file_close(struct ebb_event_file *file); /* accepts NULL */

/* Removes the event files in `dir`, then `dir` if nothing else is in it; a missing one is fine. */
enum ebb_status ebb_event_files_remove(struct ebb_ctx *ctx, const char *dir);

#ifdef __cplusplus
}
#endif
#endif
