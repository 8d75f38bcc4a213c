/* s3:// as a store of base/store.h: objects are files, and a folder is what their names have in common.
 *
 * Reading asks for ranges of the object that was opened; one that changes meanwhile is an error. Writing gathers the
 * file
 * without a name in the folder for temporary files, and puts it when it is closed or flushed: an object is whole or not
 * there. Folders before tt_dir_commit: s3_stage.h. tt_dir_commit puts "manifest.json" last, and tt_dir_remove removes
 * it first, so a folder with a manifest is whole. Locks: s3_lock.h. */
#ifndef TT_STORE_S3_H
#define TT_STORE_S3_H

/* Enters it into the table of stores, for the life of the process. Nothing is opened before the first s3:// path.
 * May be
 * called again. */
void tt_s3_store_register(void);

#endif
