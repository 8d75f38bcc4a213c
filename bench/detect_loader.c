/* The loader of images: images a second and processor time an image, from JPEG files of 1024 x 768 to batches of 16 at
 * 800 pixels. One JSON line.
 *
 *     bench_detect_loader make FOLDER [IMAGES]
 *         writes FOLDER/images and FOLDER/train-annotations-bbox.csv
 *     bench_detect_loader run FOLDER [WORKERS] [f32|bf16] [CACHE]
 *         reads them eight times; CACHE is a folder of decoded pixels, which the first epoch fills
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "detect/loader.h"

enum { HEIGHT = 768, WIDTH = 1024, IMAGES = 64, BATCH = 16, EPOCHS = 8 };

/* Soft shapes with the noise of a camera: files of some 150 KB, as photographs of this size. */
static void paint(struct tt_image *image, uint64_t seed)
{
    struct tt_rng rng = tt_rng_make(seed);
    double waves[3][3];
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++) waves[c][i] = 20 + 100 * tt_rng_uniform(rng, (uint64_t)(c * 3 + i));
    for (int32_t y = 0; y < image->height; y++) {
        for (int32_t x = 0; x < image->width; x++) {
            uint64_t at = (uint64_t)y * (uint64_t)image->width + (uint64_t)x,
                     noise = tt_rng_u64(rng, 100 + at);
            for (int c = 0; c < 3; c++) {
                double value = 128 + 60 * sin(x / waves[c][0]) * cos(y / waves[c][1]) +
                               30 * (((int)(x / waves[c][2]) + (int)(y / waves[c][0])) % 2) +
                               (double)(noise >> (16 * c) & 31) - 16;
                image->rgb[at * 3 + (uint64_t)c] = (uint8_t)fmin(fmax(value, 0), 255);
            }
        }
    }
}

static tt_status make(const char *folder, int count)
{
    struct tt_str rows = {0};
    struct tt_image image = {0};
    struct tt_path images, path;
    tt_status status = TT_OK;
    TT_GO(tt_path_set(&images, folder, "images"));
    TT_GO(tt_dir_create(images.text));
    TT_GO(tt_image_create(HEIGHT, WIDTH, &image));
    TT_GO(tt_str_append_text(&rows, "ImageID,LabelName,XMin,XMax,YMin,YMax\n"));
    for (int i = 0; i < count; i++) {
        char name[32];
        snprintf(name, sizeof name, "%06d.jpg", i);
        paint(&image, (uint64_t)i);
        TT_GO(tt_path_set(&path, images.text, name));
        TT_GO(tt_image_write(path.text, &image));
        for (int b = 0; b < 7; b++)
            TT_GO(tt_str_printf(&rows, "%06d,/m/%d,0.%d,0.%d,0.2,0.6\n", i, b, b + 1, b + 2));
    }
    TT_GO(tt_path_set(&path, folder, "train-annotations-bbox.csv"));
    TT_GO(tt_file_write_atomic(path.text, rows.data, rows.bytes));
out:
    tt_str_deinit(&rows);
    tt_image_deinit(&image);
    return status;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The processor time has that of the few batches that are read ahead at the end. */
static tt_status pass(struct tt_detect_loader *loader, int64_t images, int workers)
{
    double start = tt_clock_seconds(), cpu = cpu_seconds();
    int64_t done = 0;
    while (done < images) {
        const struct tt_detect_batch *batch;
        TT_TRY(tt_detect_loader_next(loader, &batch));
        done += batch->image_count;
    }
    double seconds = tt_clock_seconds() - start;
    cpu = cpu_seconds() - cpu;
    printf("{\"workers\": %d, \"images\": %lld, \"images_per_second\": %.1f, \"cpu_ms_per_image\": %.2f}\n",
           workers, (long long)done, (double)done / seconds, 1000 * cpu / (double)done);
    return TT_OK;
}

static tt_status run(const char *folder, int workers, tt_dtype dtype, const char *cache_folder)
{
    struct tt_detect_dataset *dataset = NULL;
    struct tt_pixel_cache *cache = NULL;
    struct tt_detect_loader *loader = NULL;
    struct tt_path images;
    tt_status status = TT_OK;
    TT_GO(tt_path_set(&images, folder, "images"));
    const struct tt_detect_dataset_config config = {
        .image_dir = images.text, .train = true, .threads = workers};
    TT_GO(tt_detect_dataset_load(&config, &dataset));
    if (cache_folder != NULL) TT_GO(tt_pixel_cache_open(cache_folder, UINT64_MAX, &cache));
    const struct tt_detect_loader_config loading = {
        .dataset = dataset,
        .order = {.view = {.min_size_count = 1, .min_sizes = {800}, .max_size = 1333, .flip = 0.5},
                  .batch_size = BATCH,
                  .world_size = 1,
                  .accumulation = 1,
                  .train = true,
                  .group_by_aspect = true},
        .workers = workers,
        .ahead = 2,
        .pixel_dtype = dtype,
        .cache = cache};
    TT_GO(tt_detect_loader_create(&loading, 0, &loader));
    TT_GO(pass(loader, EPOCHS * tt_detect_dataset_count(dataset), workers));
out:
    tt_detect_loader_destroy(loader);
    tt_pixel_cache_close(cache);
    tt_detect_dataset_destroy(dataset);
    return status;
}

int main(int argc, char **argv)
{
    tt_status status = TT_ERR_USAGE;
    if (argc >= 3 && strcmp(argv[1], "make") == 0)
        status = make(argv[2], argc > 3 ? atoi(argv[3]) : IMAGES);
    else if (argc >= 3 && strcmp(argv[1], "run") == 0)
        status = run(argv[2], argc > 3 ? atoi(argv[3]) : 1,
                     argc > 4 && strcmp(argv[4], "f32") == 0 ? TT_F32 : TT_BF16, argc > 5 ? argv[5] : NULL);
    else
        fprintf(
            stderr,
            "usage: bench_detect_loader make FOLDER [IMAGES] | run FOLDER [WORKERS] [f32|bf16] [CACHE]\n");
    if (status != TT_OK && status != TT_ERR_USAGE) fprintf(stderr, "error: %s\n", tt_error_last()->message);
    return status != TT_OK;
}
